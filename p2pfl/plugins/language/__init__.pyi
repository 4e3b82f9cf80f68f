from .adapters import AdapterRows as AdapterRows
from .adapters import naive_error as naive_error
from .base import unpack_gguf as unpack_gguf
from .lightning_learner import LightningLearner as LightningLearner
from .trainer_learner import TrainerLearner as TrainerLearner
