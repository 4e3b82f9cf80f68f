"""Use of a trained model: predictions, evaluation and export."""

from p2pfl.inference.arrays import ArrayPredictor
from p2pfl.inference.evaluating import Evaluation, GroupScores, evaluate
from p2pfl.inference.exporting import export
from p2pfl.inference.predictor import Predictions, Predictor

__all__ = ["ArrayPredictor", "Evaluation", "GroupScores", "Predictions", "Predictor", "evaluate", "export"]
