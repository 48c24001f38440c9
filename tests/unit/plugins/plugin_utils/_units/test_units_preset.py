import configparser

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.preset import preset

ARGS = ["--model", "/m/big.gguf", "--alias", "big,b", "--no-mmap", "--reasoning-budget", "-1", "--chat-template-kwargs"]


def test_preset_has_section_per_model_line_per_flag():
    text = preset([{"model": "big", "args": [*ARGS, '{"a": "one; two #3"}']}, {"model": "small", "args": ["--jinja"]}])
    read = configparser.ConfigParser()
    read.read_string(text.replace("version = 1\n", ""))
    assert dict(read["*"]) == {"metrics": "true"}
    assert dict(read["big"]) == {
        "model": "/m/big.gguf",
        "alias": "big,b",
        "no-mmap": "true",
        "reasoning-budget": "-1",
        # Characters that would end a value for llama.cpp.
        "chat-template-kwargs": '{"a": "one\\u003b two \\u00233"}',
    }
    assert dict(read["small"]) == {"jinja": "true"}
