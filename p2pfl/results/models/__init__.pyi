from .arrays import ArrayPredictor as ArrayPredictor
from .exporters import export as export
from .model_evaluation import Evaluation as Evaluation
from .model_evaluation import GroupScores as GroupScores
from .model_evaluation import evaluate as evaluate
from .predictor import Predictions as Predictions
from .predictor import Predictor as Predictor
