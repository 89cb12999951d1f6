"""The templates that fit a task."""

from __future__ import annotations

from functools import lru_cache

from spaces.targets.backends import backend_of, load
from spaces.templates.base import Template
from tuner.task import Task


def templates_of(task: Task) -> list[Template]:
    """Templates for a task, best first; empty where only TVM's rules apply."""
    found: list[Template] = load(backend_of(task.target).templates)(task)
    return found


@lru_cache(maxsize=256)
def template_named(task: Task, name: str) -> Template | None:
    """The template of a task that spans the space of this name, to write given settings; None where
    the task has none. It is made once."""
    from spaces.templates.memory.template import NAME, memory_template

    if name == NAME:
        return memory_template(task, tried=False)
    return next((t for t in templates_of(task) if t.name == name), None)


def gpu_templates(task: Task) -> list[Template]:
    """Templates for attention, for products (on tensor cores, by threads, and with few rows), and
    for programs bound by memory."""
    from spaces.templates.attention.gpu.template import gpu_attention_templates
    from spaces.templates.contraction.match import match_contraction
    from spaces.templates.few_rows import family as few_rows
    from spaces.templates.gpu_memory.template import gpu_memory_templates
    from spaces.templates.products.template import may_be_product, product_templates
    from spaces.templates.tensor_cores import family as tensor_cores
    from spaces.templates.thread_products import family as thread_products

    if attention := gpu_attention_templates(task):
        return attention
    found: list[Template] = []
    if task.shapes or may_be_product(task):
        rooms = [room.list_families for room in (thread_products, tensor_cores, few_rows)]
        found = product_templates(task, match_contraction(task), rooms)
    return found or [*gpu_memory_templates(task)]


def cpu_templates(task: Task) -> list[Template]:
    """Templates for attention, for products, for programs bound by memory, and for plain loops."""
    from spaces.templates.attention.cpu.template import cpu_attention_templates
    from spaces.templates.block_products.template import block_templates
    from spaces.templates.contraction.match import match_contraction
    from spaces.templates.contraction.template import contraction_templates
    from spaces.templates.memory.template import memory_template
    from spaces.templates.plain_loops import plain_loops

    if attention := cpu_attention_templates(task):
        return attention
    if blocks := block_templates(task):
        return blocks
    match = match_contraction(task)
    found = contraction_templates(task, match)
    if (memory := memory_template(task)) is not None:  # of a product too, if it is small
        found = [*found, memory]
    if not found and (loops := plain_loops(task)) is not None:
        return [loops]
    return found
