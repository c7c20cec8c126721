"""Smoke, flame and gas readings to signs of fire, and whether the sensors behind them work."""
