"""Prints the transition tables, made from the code: `python -m handover`."""

from handover import source, target
from handover.machine import render

print("## Source\n")
print(render(source.TABLE))
print("\n## Target\n")
print(render(target.TABLE))
