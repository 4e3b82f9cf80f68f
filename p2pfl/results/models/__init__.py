"""Use of a trained model: predictions, evaluation and export."""

from p2pfl.results.models.arrays import ArrayPredictor
from p2pfl.results.models.exporters import export
from p2pfl.results.models.model_evaluation import Evaluation, GroupScores, evaluate
from p2pfl.results.models.predictor import Predictions, Predictor

__all__ = ["ArrayPredictor", "Evaluation", "GroupScores", "Predictions", "Predictor", "evaluate", "export"]
