"""The page to take away, without a browser: names cannot leave the data that the page holds."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from handful import FewShotClassifier
from handful.serve.standalone import PAGE, standalone_page

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def page() -> str:
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (28, 28), dtype=np.uint8)) for _ in range(4)]
    labels = [HOSTILE, HOSTILE, "<!--", "<!--"]
    learnt = FewShotClassifier(embedding="characters").fit(images, labels)
    assert learnt.embedder_ is not None
    return standalone_page(f"my {HOSTILE}", learnt.state_, learnt.embedder_)


def test_a_name_cannot_end_the_script_that_holds_it(page):
    template = PAGE.read_text(encoding="utf-8")
    assert page.lower().count("<script") == template.lower().count("<script")
    assert page.lower().count("</script") == template.lower().count("</script")
    assert page.count("<!--") == template.count("<!--")


def test_the_page_holds_the_names_as_they_are(page):
    before, after = PAGE.read_text(encoding="utf-8").split("MODEL_AS_JSON")
    found = re.fullmatch(re.escape(before) + r"(\{.*\})" + re.escape(after), page, re.DOTALL)
    assert found
    model = json.loads(found[1])
    assert model["name"] == f"my {HOSTILE}"
    assert sorted(model["classes"]) == ["<!--", HOSTILE]
