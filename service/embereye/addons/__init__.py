"""Add-ons: features beside the watch, each in a folder of this package. Deleting the folder deletes the feature.

An add-on's folder has its code, commands, benchmarks and tests, a README and runbooks. Nothing else imports it:
processes and commands find these modules of it by name, with `embereye.process.addons`.

| module | must have |
| --- | --- |
| `commands` | `COMMANDS` and `SECTIONS`, perhaps `GROUPS`: additions to those of `embereye_cli.main` |
| `bench` | some of `HUB_BENCHMARKS`, `SENSOR_BENCHMARKS` and `NEEDS`: additions to those of `embereye bench` |
| `metrics` | declarations of its metrics |
| `tables` | `TABLES`: its tables in the hub's database |
| `up` | `add_arguments(parser)`: options that only `embereye up` has; `hub_arguments(arguments)`: those of its hub |
| `doctor` | `add_arguments(parser)` and `check(arguments, fleets)`: options and findings of `embereye doctor` |
| `sensors` | `SCHEMES` of devices' sources, and `open_source()`: makes a `ReadingSource` of sensor shards |
| `monitoring` | `ALERTS`, perhaps `PANELS` for the hub's dashboard; each alert has a page in `runbooks` |
| `resources` | `KINDS`: custom resources, each an `AddedKind` |
| `operator` | `build(context)`: return an `OperatorPart` |
| `hub` | `read(arguments)`: return an `Addon` for the hub; perhaps `OPTIONS`, an `OptionGroup` of `embereye hub` |

After a folder is deleted, `make monitoring` writes the alert rules, dashboards and the page of metrics without it. The
chart's values for it remain (such as `hub.nats`), and the hub refuses the options that they set.
"""
