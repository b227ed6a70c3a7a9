"""Options in the way of Inria's trainers: the attributes of a group are options of the command line."""


class ParamGroup:
    def __init__(self, parser):
        for key, value in vars(self).items():
            name = key.lstrip("_")
            words = [f"--{name}", *([f"-{name[0]}"] if key.startswith("_") else [])]
            if isinstance(value, bool):
                parser.add_argument(*words, default=value, action="store_true")
            else:
                parser.add_argument(*words, default=value, type=type(value))


class ModelParams(ParamGroup):
    def __init__(self, parser):
        self._source_path = ""
        self._model_path = ""
        self._resolution = -1
        self.eval = False
        super().__init__(parser)


class OptimizationParams(ParamGroup):
    def __init__(self, parser):
        self.iterations = 30_000
        self.densify_from_iter = 500
        self.densify_until_iter = 15_000
        self.densification_interval = 100
        super().__init__(parser)
