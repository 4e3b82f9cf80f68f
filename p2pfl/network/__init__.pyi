from . import transport as transport
