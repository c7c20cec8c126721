"""SIA DC-09: alarms to a monitoring station, and alarms of fire panels as evidence."""
