"""The sound of smoke and carbon monoxide alarms, in the audio track of a camera or a microphone."""
