"""Write mhalesson/exercises/mistakes.md: every exercise, the mistakes it names, and its sentence for each."""

from pathlib import Path

from mhalesson.exercises import EXERCISES
from mhalesson.exercises.engine import Exercise

TABLE = Path(__file__).parents[1] / "mhalesson" / "exercises" / "mistakes.md"

HEAD = """# The mistakes that the exercises name

Generated from the modules beside this file by `make mistakes`; a test compares. To add one, write a `Mistake`
with a name, the sentence, and a function that makes it. The tests then ask that it is never accepted, always
named by its own sentence, and told apart from all others. Two mistakes made at once are found by the engine
where both are `partial`s of one function.
"""


def rows(exercise: Exercise) -> str:
    kind = "stretch" if exercise.stretch else "required"
    head = [
        f"## {exercise.page} · `{exercise.id}` ({kind})",
        "",
        "| mistake | what the check says |",
        "|---|---|",
    ]
    return "\n".join([*head, *(f"| {mistake.name} | {mistake.says} |" for mistake in exercise.mistakes)])


def table() -> str:
    return "\n\n".join([HEAD.rstrip(), *map(rows, EXERCISES.values())]) + "\n"


if __name__ == "__main__":
    TABLE.write_bytes(table().encode())
