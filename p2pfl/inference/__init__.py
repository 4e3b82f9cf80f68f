"""Use of a trained model: predictions, evaluation and export."""

from p2pfl.inference.arrays import ArrayPredictor
from p2pfl.inference.evaluating import Evaluation, Group, evaluate
from p2pfl.inference.exporting import export
from p2pfl.inference.predictor import Predictions, Predictor

__all__ = ["ArrayPredictor", "Evaluation", "Group", "Predictions", "Predictor", "evaluate", "export"]
