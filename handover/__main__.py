"""Prints the transition tables, made from the code: `python -m handover`."""

from handover import acquisition, source, target
from waypost.table_machine import render

print("## Source\n")
print(render(source.TABLE))
print("\n## Target\n")
print(render(target.TABLE))
print("\n## Acquisition\n")
print(render(acquisition.TABLE))
