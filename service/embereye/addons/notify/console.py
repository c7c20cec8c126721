"""The scripts that the console loads for notifications and the siren, and their texts."""

from importlib import resources

SCRIPTS = ("/notify/siren.js", "/notify/notify.js")
MESSAGES = (resources.files(__package__).joinpath("messages"),)
SCRIPTS_WITHOUT_ROUTES = ("/notify/siren.js", "/notify/undeclared.js")
