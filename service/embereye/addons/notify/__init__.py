"""Notifications: alarms reach people by any of Apprise's services or Web Push, and escalate until acknowledged."""
