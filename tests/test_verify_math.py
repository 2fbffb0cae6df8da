"""The math referee: wrong answers are never paid, right ones are, whatever they look like.

Each test of a kind names in its docstring what a referee with that fault would give.
VERIFY_EXAMPLES sets the number of random examples (300).
"""

import concurrent.futures
import itertools
import os
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agon_jax.verify.math import MathPool, gradable, grade, grade_answer
from agon_jax.verify.math_extract import boxed, extract

EXAMPLES = int(os.environ.get("VERIFY_EXAMPLES", "300"))
FUZZ = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def check(*rows, right):
    """Each row is (completion, gold)."""
    wrong = [(row, got) for row in rows if (got := grade(*row)).correct is not right]
    assert not wrong


# Finding the answer.


@pytest.mark.parametrize(
    "text, inner",
    [
        (r"So $\boxed{\dfrac{7}{\sqrt{3}+\frac{1}{2}}}$.", r"\dfrac{7}{\sqrt{3}+\frac{1}{2}}"),
        (r"\boxed{\frac{a}{b}}", r"\frac{a}{b}"),
        (r"\boxed{\sqrt{2+\sqrt{3}}}", r"\sqrt{2+\sqrt{3}}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{x^{2^{3}}} and done", r"x^{2^{3}}"),
        (r"\boxed{\left\{ \frac{1}{2} \right\}}", r"\left\{ \frac{1}{2} \right\}"),
        (r"\boxed{a\}b}", r"a\}b"),
        (r"Hence \fbox{\frac{5}{8}}", r"\frac{5}{8}"),
        (r"\boxed{1} then \fbox{2}", "2"),
        (r"\boxed{1} and unfinished \boxed{\frac{2}{3", "1"),
        (r"So \boxed 7", "7"),
        (r"So $\boxed 12$.", "12"),
        (r"\boxed {12}", "12"),
        (r"\[ \boxed{57} \]", "57"),
        (r"\boxed{57", None),
        (r"the word \boxed. Nothing", None),
        (r"\boxed", None),
        (r"\boxedtext{3}", None),
        (r"\boxed{4} or \boxed{9}", "4, 9"),
        (r"$x=\boxed{4}$ and $x=\boxed{9}$", "4, 9"),
        (r"\boxed{9} ... no, on reflection \boxed{4}", "4"),
        (r"\boxed{5}, so the value is \boxed{5}", "5"),
    ],
)
def test_boxes(text, inner):
    """A pattern up to the first brace gives \\dfrac{7}{\\sqrt{3 for the first row."""
    assert boxed(text) == inner


@pytest.mark.parametrize(
    "text, answer",
    [
        ("Answer: 12\nWait, I dropped a carry.\nAnswer: 15", "15"),
        ("answer: 3\nThe answer is 4.", "4"),
        ("**Answer:** $7$", "$7$"),
        ("Final answer: 8\nAnswer is 9", "9"),
        ("The final answer is \\(5\\).", "\\(5\\)"),
        ("Answer: 3.5 and more", "3.5 and more"),
        ("The answer is 3.5. Then I stop.", "3.5"),
        ("<answer>1</answer> no <answer> 2 </answer>", "2"),
        ("<answer>1</answer><answer>2", "1"),
        ("<answer>1<answer>2</answer>", "2"),
        ("<think>\\boxed{1}</think>\\boxed{2}", "2"),
        ("\\boxed{1}</think>x", "x"),
        ("<think>maybe \\boxed{12}", None),
        ("<answer>3</answer>\n<think>a</think>", None),
        ("<answer>3</answer><think>\\boxed{4}", "3"),
        ("\\boxed{3} Answer: 4", "3"),
        ("", None),
        ("42", "42"),
    ],
)
def test_extract(text, answer):
    """A first-match search gives 12 for the first row; one that ignores the reasoning pays 12 below."""
    assert extract(text) == answer


def test_far_from_the_end():
    """A search of the last 300 characters finds nothing: 0 instead of 1."""
    tail = "The reasoning above confirms this result. "
    terms = "+".join(f"{i}x^{{{i}}}" for i in range(2, 31))
    check((f"9*7=63, so \\boxed{{63}}. {tail * 12}", "63"), right=True)
    check((f"\\boxed{{63}} {tail * 5000}", "63"), right=True)
    check((f"\\boxed{{{terms}}}", terms), (f"\\boxed{{{terms}+0}}", terms), right=True)
    check((f"{tail * 300}<answer>63</answer>{tail * 300}", "63"), right=True)
    check((f"\\boxed{{{terms}+1}}", terms), right=False)


def test_linear_in_hostile_text():
    """Quadratic scans take minutes here."""
    for text in ("\\boxed{" * 40_000, "<answer>" * 40_000, "{" * 300_000 + "\\boxed{1}", "\\boxed " * 50_000):
        grade(text, "1")
    assert grade("{" * 300_000 + "\\boxed{1}", "1").correct


# Numbers.


def test_fractions_and_roots():
    """Cut at the first brace, these are 0 instead of 1."""
    check(
        (r"\boxed{\dfrac{7}{\sqrt{3}+\frac{1}{2}}}", r"\frac{14}{1+2\sqrt{3}}"),
        (r"\boxed{\frac{\sqrt{3}}{3}}", r"\frac{1}{\sqrt{3}}"),
        (r"\boxed{\sqrt{50}}", r"5\sqrt{2}"),
        (r"\boxed{\frac43}", r"\frac{4}{3}"),
        (r"\boxed{\frac 59}", "5/9"),
        (r"\boxed{\frac9{19}}", r"\dfrac{9}{19}"),
        (r"\boxed{\sqrt[3]{-8}}", "-2"),
        (r"\boxed{8^{1/3}}", "2"),
        (r"\boxed{\frac{-1}{2}}", r"-\frac{1}{2}"),
        right=True,
    )


def test_tiny_numbers():
    """Rounding to 6 decimals makes each of the wrong pairs equal: 1 instead of 0."""
    check(
        (r"\boxed{\frac{1}{3^{40}}}", r"\frac{1}{3^{41}}"),
        (r"\boxed{10^{-12}}", "10^{-13}"),
        ("0.00000000001", "0"),
        ("e^{-50}", "0"),
        ("e^{-50}", "e^{-51}"),
        ("-0.0000000001", "0.0000000001"),
        ("10^{-50}x", "10^{-51}x"),
        ("x+10^{-70}y", "x"),
        (r"\sqrt{2}+10^{-200}", r"\sqrt{2}"),
        ("1+10^{-50}i", "1"),
        (r"x \cdot (1+10^{-400})", "x"),
        (r"\cos(10^{-200})", "1"),
        (r"\tanh(1000)", "1"),
        ("x+e^{-1000}", "x"),
        right=False,
    )
    check(
        (r"\boxed{\frac{1}{3^{41}}}", "3^{-41}"),
        ("0.0000672", r"6.72 \times 10^{-5}"),
        ("6.72e-5", ".0000672"),
        (r"\sqrt{2}\sqrt{3}-\sqrt{6}", "0"),
        (r"e^{-50}", r"\frac{1}{e^{50}}"),
        right=True,
    )


def test_huge_numbers():
    """As floats these differ by 0, so the wrong pairs would be paid."""
    check(
        ("2^{1000}+1", "2^{1000}"),
        ("100000000000000000001", "100000000000000000000"),
        ("9999999999999999.9", "10000000000000000"),
        ("10^{100}", "10^{101}"),
        ("50!+1", "50!"),
        (r"e^{\pi\sqrt{163}}", "262537412640768744"),
        ("9^{9^{9^9}}", "9^{9^{9^{10}}}"),
        right=False,
    )
    check(("9^{9^{9^9}}", "9^{9^{9^9}}"), ("2^{10}", "1024"), (r"\binom{10}{3}", "120"), right=True)


def test_bases():
    """Without its subscript 432_8 is 432, as is 432_7: 282 would equal 219."""
    check(
        (r"\boxed{432_8}", "432_{7}"),
        ("432", "432_7"),
        ("432_7", "432"),
        ("219", "432_7"),
        ("11_2", "11_{10}"),
        ("11_{3}", "11_2"),
        ("4210_5", "4201_5"),
        ("778_8", "1008_8"),
        right=False,
    )
    check(
        (r"\boxed{432_7}", "432_{7}"),
        (r"\boxed{432_{7}}", "432_7"),
        (r"4210_{\text{five}}", "4210_{5}"),
        (r"4210 \text{ base } 5", "4210_{5}"),
        ("1A_{16}", "1a_{16}"),
        ("432₇", "432_7"),
        right=True,
    )


def test_mixed_numbers():
    """As products 2\\frac{1}{2} is 1 and 2\\frac{1}{3} is 2/3."""
    check(
        (r"\boxed{2\frac{1}{3}}", r"\frac{7}{3}"),
        (r"\boxed{-1\frac{1}{2}}", "-1.5"),
        (r"2\frac12", "2.5"),
        ("2 1/2", "5/2"),
        ("2½", "2.5"),
        ("137.5", r"137 \frac{1}{2}"),
        (r"\frac{9}{5}", r"1\frac{4}{5}"),
        (r"2\cdot\frac{1}{2}", "1"),
        right=True,
    )
    check(
        (r"\boxed{2\frac{1}{3}}", r"\frac{2}{3}"),
        (r"\boxed{-1\frac{1}{2}}", "-0.5"),
        (r"2\frac12", "1"),
        ("2 1/2", "1"),
        ("2 1/2", "21/2"),
        (r"3\frac{1}{4}", r"\frac{3}{4}"),
        (r"2\frac{3}{2}", "3"),
        right=False,
    )


def test_thousands():
    """Dropping `\\,345` or summing it gives 2 or 347 for 2\\,345."""
    check(
        ("1,000", "1000"),
        ("1{,}000", "1000"),
        (r"2\,345", "2345"),
        ("1 000", "1000"),
        ("1\u202f000\u202f000", "1000000"),
        (r"10,\!080", "10080"),
        (r"\$32,348", r"\$32,\!348"),
        ("1,234,567.89", "1234567.89"),
        ("1,000, 2,000", "2000, 1000"),
        right=True,
    )
    check(
        (r"2\,345", "347"),
        (r"2\,345", "2"),
        ("1,00", "100"),
        ("1, 000", "1000"),
        ("1,0", "10"),
        ("4 9", "49"),
        ("3,14", "3.14"),
        ("1.000", "1000"),
        ("(1,000)", "1000"),
        right=False,
    )


def test_rounding():
    """Six rounded decimals make 0.3333333 a third and 3.1415927 pi."""
    check(
        ("0.33", r"\frac13"),
        ("0.3333333333333333", "1/3"),
        ("3.14", r"\pi"),
        ("3.141592653589793", r"\pi"),
        (r"\pi", "3.14"),
        ("22/7", r"\pi"),
        ("1.4142135623730951", r"\sqrt{2}"),
        ("2.718281828", "e"),
        ("0.333", "0.33"),
        ("1/3", "0.3"),
        ("2/3", "0.66"),
        right=False,
    )
    check(
        ("1/2", "0.5"),
        ("0.5", r"\frac{1}{2}"),
        ("1/3", "0.33"),
        (r"\frac{2}{3}", "0.67"),
        (r"0.\overline{3}", r"\frac13"),
        (r"0.1\overline{36}", r"\frac{3}{22}"),
        ("18.90", "18.9"),
        ("042", "42"),
        right=True,
    )


def test_sign_and_unicode():
    """A minus that is not ASCII, dropped, pays 3 for -3."""
    check(
        ("3", "-3"), ("−3", "3"), ("-x", "x"), (r"\infty", r"-\infty"), ("5²", "52"), ("²", "2"), right=False
    )
    check(
        ("−3", "-3"),
        ("x²+1", "x^2+1"),
        ("√2", r"\sqrt{2}"),
        ("3√(2)", r"3\sqrt2"),
        ("½", "0.5"),
        ("６３", "63"),
        ("2π", r"2\pi"),
        ("x ≤ 3", r"x \le 3"),
        ("90°", r"90^\circ"),
        ("--3", "3"),
        right=True,
    )


def test_units_percent_money():
    """Units dropped on both sides make 5 cm equal to 5 m, and 0.15 equal to 0.15%."""
    check(
        (r"3.08\%", r"3.08\%"),
        ("0.15", r"15\%"),
        (r"15\%", "15"),
        ("15", r"15\%"),
        ("90", r"90^\circ"),
        (r"\frac{\pi}{2}", r"90^\circ"),
        (r"\$18.90", "18.9"),
        ("18.9 dollars", r"\$18.90"),
        ("$5", "5"),
        ("12 apples", "12"),
        (r"5 \text{ cm}", "5"),
        ("864 square inches", r"864 \mbox{ inches}^2"),
        (r"\frac{270}{7}", r"\frac{270}7\text{ degrees}"),
        ("5 m", "5"),
        right=True,
    )
    check(
        (r"0.15\%", "0.15"),
        (r"1\%", "1"),
        ("15", "0.15"),
        (r"1500\%", "0.15"),
        ("5 cm", r"5 \text{ m}"),
        ("5 cm", r"5 \text{ cm}^2"),
        (r"\$5", r"5 \text{ cents}"),
        ("5 thousand", "5"),
        ("5 dozen", "5"),
        (r"5 \text{ hundredths}", "5"),
        (r"9 \text{ is wrong}", "9"),
        ("5 n", "5"),
        (r"30^\circ", "30\\pi"),
        right=False,
    )


# Lists and hedging.


def test_find_all():
    """Counting any overlap pays 64 for "27 and 64"."""
    check(
        (r"\boxed{64}", "27 and 64"),
        (r"\boxed{64}", "27, 64"),
        (r"\boxed{27, 64, 125}", "27 and 64"),
        ("27, 27", "27, 64"),
        ("27, 64, 64", "27, 64"),
        ("3", r"\pm 3"),
        (r"1+\sqrt{19}", r"1 \pm \sqrt{19}"),
        ("x=1", "x=1, y=2"),
        ("1, 2", "x=1, y=2"),
        ("Ann", r"\text{Ann and Bob}"),
        ("(1,2)", "(1,2), (3,4)"),
        (r"\emptyset", r"\{0\}"),
        (r"\{1, \{2\}\}", r"\{1, 2\}"),
        right=False,
    )
    check(
        (r"\boxed{64, 27}", "27 and 64"),
        ("27 or 64", "27, 64"),
        (r"x=27 \text{ or } x=64", "27, 64"),
        (r"\{64, 27\}", "27, 64"),
        (r"1-\sqrt{19}, 1+\sqrt{19}", r"1 \pm \sqrt{19}"),
        (r"\{-2, 1+\sqrt5, 1-\sqrt5\}", r"\{1\pm\sqrt{5},-2\}"),
        ("(3,4), (1,2)", "(1,2), (3,4)"),
        ("Bob, Ann", r"\text{Ann and Bob}"),
        ("y=2, x=1", "x=1, y=2"),
        (r"\boxed{4} or \boxed{9}", "4, 9"),
        right=True,
    )


def test_candidates():
    """Looking for the gold anywhere in the answer pays every one of these."""
    check(
        ("<answer>4 or 9</answer>", "9"),
        (r"\boxed{9} ... no, on reflection \boxed{4}", "9"),
        (r"\boxed{4\text{ or }9}", "9"),
        ("4, 9", "9"),
        ("x=4 or possibly 9", "9"),
        ("x=4 or possibly 9", "4"),
        (r"\boxed{4} or \boxed{9}", "9"),
        (r"\boxed{4} cm or \boxed{9} cm", "9"),
        (r"4 \lor 9", "9"),
        (r"4 \to 9", "9"),
        ("4/9 or so", "4/9"),
        ("9 (or 4)", "9"),
        ("either 4 or 9", "9"),
        (r"\{4, 9\}", "9"),
        ("4; 9", "9"),
        ("4 9", "9"),
        ("4\n9", "9"),
        ("not 9", "9"),
        (r"\neq 9", "9"),
        ("9 = 4", "9"),
        ("9 = 4", "4"),
        ("4 = x = 9", "9"),
        ("x = 4, x = 9", "9"),
        (r"\pm 9", "9"),
        ("9...", "9"),
        ("yes or no", "yes"),
        ("A, B", "A"),
        ("The answer is $4$ or $9$.", "9"),
        right=False,
    )


GOLDS_OF_NOTHING = ["42", r"\frac{1}{2}", "0", "", "   ", r"\text{yes}"]
NOTHING = [
    "<think>hm</think><answer></answer>",
    r"\boxed{}",
    r"\boxed{ }",
    "<answer>\n</answer>",
    r"\boxed{\text{}}",
    "",
    "   ",
    "$$",
    r"\boxed{\,}",
    ".",
    r"\{\}",
    "\u200b",
]


@pytest.mark.parametrize("gold", GOLDS_OF_NOTHING)
def test_nothing_is_never_right(gold):
    """`answer in gold` holds for the empty string: 1 for each of these."""
    check(*((text, gold) for text in NOTHING), right=False)


UNGRADABLE = [
    "7. The second tank fills twice as fast as the first one.",
    "",
    " \n",
    "$$",
    r"\boxed{}",
    r"We add the two areas, so the total is 4. Thus \boxed{4}",
    "He has 3 + 4 = 7 apples, so 7 are left. #### 7",
    r"\frac{1}{2",
    "x =",
    "nan",
    "None",
    "1/0",
    r"\frac{\infty}{\infty}",
    "?",
    "The value is then 5 since the other root was ruled out above",
]


@pytest.mark.parametrize("gold", UNGRADABLE)
def test_unreadable_golds_are_never_paid(gold):
    """Paying every answer when the gold cannot be parsed gives 1 here, even for "I do not know."."""
    assert gradable(gold)
    for text in (r"\boxed{1}", "I do not know.", "", "7", "0", gold, f"<answer>{gold}</answer>"):
        verdict = grade_answer(text, gold)
        assert not verdict.correct and verdict.reason.startswith("reference: ")


def test_gradable_golds():
    assert gradable(None) and gradable(5)
    for gold in GOLDS:
        assert gradable(gold) is None, gold


# Forms.


def test_intervals_points_sets():
    """Read as tuples without their brackets, (1,2] and [1,2) are the same."""
    check(
        ("(1,2]", "[1,2)"),
        ("(1,2)", "[1,2]"),
        (r"(-\infty,2]", r"(-\infty,2)"),
        (r"(1,2)\cup(2,3)", "(1,3)"),
        ("(1,2)", "(2,1)"),
        ("x=2, y=1", "(1,2)"),
        ("x=1, z=2", "(1,2)"),
        ("x=1, y=2", "[1,2]"),
        ("(1,2,3)", "(1,3,2)"),
        (r"\{1,2\}", "(1,2)"),
        ("(1,2)", r"\{1,2\}"),
        ("1,2", "(1,2)"),
        (r"x \ge 3", r"(3,\infty)"),
        ("x<5", "x>5"),
        ("x<5", r"x \le 5"),
        ("y<5", "x<5"),
        ("-2x-y<-1", "2x+y<1"),
        ("(0,9)", r"(0,9) \cup (9,36)"),
        right=False,
    )
    check(
        (r"\{2,1,1\}", r"\{1,2\}"),
        (r"(1.5, \pi/2)", r"\left( \frac{3}{2}, \frac{\pi}{2} \right)"),
        ("x>3", r"(3,\infty)"),
        ("3 < x", "x > 3"),
        (r"-2 \le x \le 7", r"x \in [-2,7]"),
        ("[-2,7]", r"x \in [-2,7]"),
        ("x<2 or x>3", r"(-\infty, 2) \cup (3, \infty)"),
        (r"(3,\infty)\cup(-\infty,2)", r"(-\infty, 2) \cup (3, \infty)"),
        (r"(0,36) \setminus \{9\}", r"(0,9) \cup (9,36)"),
        (r"(1,2]\cup(2,3)", "(1,3)"),
        (r"(-\infty,\infty)", r"\mathbb{R}"),
        (r"\langle 1,2,3 \rangle", "(1,2,3)"),
        ("y=2, x=1", "(1,2)"),
        (r"x \ne 0", r"(-\infty,0)\cup(0,\infty)"),
        right=True,
    )


def test_matrices():
    """Compared as sets of entries, a matrix equals its transpose."""
    matrix = r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"
    check(
        (r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", matrix),
        (r"\begin{pmatrix}1&2&3&4\end{pmatrix}", matrix),
        (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", matrix),
        (r"\begin{pmatrix}1&2\\3\end{pmatrix}", matrix),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
        ("-2", matrix),
        right=False,
    )
    check(
        (r"\begin{bmatrix}1&2\\3&4\end{bmatrix}", matrix),
        (r"\begin{pmatrix}1&2\\[4pt]3&4\\\end{pmatrix}", matrix),
        (r"\left(\begin{array}{cc}1&2\\3&4\end{array}\right)", matrix),
        (r"\frac13\begin{pmatrix}-1\\2\end{pmatrix}", r"\begin{pmatrix}-1/3\\2/3\end{pmatrix}"),
        (r"-\begin{pmatrix}-1&-2\\-3&-4\end{pmatrix}", matrix),
        right=True,
    )


def test_expressions_and_equations():
    """Letters mapped by position make x+1 equal to y+1; both sides solved make 2x=10 the answer 5."""
    check(
        ("(x-1)^2", "x^2-1"),
        ("y+1", "x+1"),
        (r"\sqrt{x^2}", "x"),
        (r"\ln|x|", r"\ln x"),
        ("x^2", "x^2+C"),
        (r"\sin x^2", r"\sin^2 x"),
        ("f(2x)", "2f(x)"),
        ("1/2x", r"\frac{1}{2x}"),
        ("2-3i", "2+3i"),
        ("3i", "3"),
        ("ii", "-1"),
        ("y=5", "x=5"),
        ("2x=10", "x=5"),
        ("x-5=0", "x=5"),
        ("x^2=25", "x=5"),
        ("y=2x+1", "y=2x-1"),
        ("0=0", "2x+y=1"),
        ("2x+y", "2x+y=1"),
        ("x^{-1}=5", "5"),
        ("p q", "p - q"),
        (r"y \in [-2,7]", r"x \in [-2,7]"),
        (r"\lfloor x \rfloor", "x"),
        (r"\lfloor x \rfloor", r"\lceil x \rceil - 1"),
        right=False,
    )
    check(
        (r"\boxed{(a+b)^2}", "a^2+2ab+b^2"),
        ("(b+2)(a+5)", "(a+5)(b+2)"),
        (r"\frac{\cos x}{\sin x}", r"\cot x"),
        (r"\sin^2\theta+\cos^2\theta", "1"),
        ("(n+1)!", r"(n+1)\cdot n!"),
        ("f(x+x)", "f(2x)"),
        ("3x^2 + 2x", "2x + 3x^2"),
        ("4i+3", "3+4i"),
        (r"e^{i\pi}", "-1"),
        (r"\sin 30^\circ", r"\frac12"),
        (r"\lfloor 2.5 \rfloor", "2"),
        (r"\log_2 8", "3"),
        ("x=5", "5"),
        ("5", "x=5"),
        ("5=x", "x=5"),
        ("2x-y+3=0", "y=2x+3"),
        ("10x-14y+8=0", "5x-7y+4=0"),
        ("f(x)=x^2", "x^2"),
        (r"x = \sqrt2 \approx 1.41", r"\sqrt2"),
        ("(x,y)=(1,2)", "(1,2)"),
        right=True,
    )


def test_the_question_is_no_answer():
    """Evaluated for the policy, each of these repeats a question and is paid 1."""
    check(
        (r"\int_0^1 x\,dx", "1/2"),
        (r"\sum_{k=1}^{3} k", "6"),
        (r"\prod_{k=1}^{3} k", "6"),
        (r"\lim_{x \to 0} \frac{\sin x}{x}", "1"),
        (r"7 \bmod 4", "3"),
        (r"\gcd(4,6)", "2"),
        ("2x=4", "x=2"),
        right=False,
    )


def test_words():
    """Compared by letters as symbols, "no" equals "on"; by substring, "even" is in "not even"."""
    check(
        ("B", r"\text{(C)}"),
        ("AB", "A"),
        ("no", "on"),
        ("no", "yes"),
        ("not even", r"\text{even}"),
        ("uneven", r"\text{even}"),
        ("north east", r"\text{east}"),
        ("Tuesday", "Thursday"),
        ("2", r"\text{two apples}"),
        ("ii", "iii"),
        right=False,
    )
    check(
        ("C", r"\text{(C)}"),
        ("(C)", "C"),
        (r"\textbf{(C)}", r"\text{(C)}"),
        ("Option C", "C"),
        ("yes.", r"\text{Yes}"),
        ("an ellipse", r"\text{ellipse}"),
        ("Evelyn", r"\text{Evelyn}"),
        ("(ii)", "ii"),
        (r"\text{Sunday}", "Sunday"),
        right=True,
    )


def test_replies():
    """Reasoning that was cut pays its intermediate value; two blocks pay either one."""
    check(
        ("2 plus 2 is 4.\n</think>\n\\boxed{4}", "4"),
        ("\\boxed{4}", "4"),
        ("<think>line 1\nline 2</think>\n<answer>3</answer>", "3"),
        (r"<answer>\boxed{3}</answer>", "3"),
        (r"<answer>$x = 3$</answer>", "3"),
        (r"This gives \[ \boxed{57} \]", "57"),
        (r"Hence \fbox{\frac{5}{8}}", "0.625"),
        right=True,
    )
    check(
        ("<think>Try x=12, so maybe \\boxed{12}? Let me check the other case", "12"),
        ("<think>a</think>\n<answer>3</answer>\n<answer>4</answer>", "3"),
        (r"unfinished \boxed{\frac{1}{2", "1"),
        (r"I will mark my solution with \boxed. The total is 31.", "3"),
        right=False,
    )


def test_grade_holds_what_it_judged():
    verdict = grade(r"So \boxed{\frac{5}{8}}.", "0.625")
    assert (verdict.correct, verdict.extracted, verdict.reason) == (True, r"\frac{5}{8}", "equal")
    assert grade("7", "8").reason == "different"
    assert grade("", "8").reason == "no answer"
    assert grade("9^{9^{9^9}}", "8").reason == "too big"
    assert grade("0/0", "8.25").reason == "undefined"
    assert grade("1 + + + +", "8").reason.startswith("unreadable: ")
    assert grade("(" * 3000 + "8" + ")" * 3000, "8").reason == "unreadable: nested too deeply"
    assert grade("8" * 30_000, "8").reason == "unreadable: too long"


def test_threads():
    """Signal timeouts raise in threads, which counted as wrong: 0 sixteen times."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as threads:
        rows = [
            (r"\boxed{3.08\%}", r"3.08\%"),
            (r"\boxed{(a+b)^2}", "a^2+2ab+b^2"),
            (r"\sqrt8", r"2\sqrt2"),
        ] * 16
        assert all(verdict.correct for verdict in threads.map(lambda row: grade(*row), rows))


def test_workers_never_import_jax():
    code = "import sys, agon_jax.verify.math; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Many golds against each other. All values differ.

GOLDS = [
    *(
        "0",
        "1",
        "-1",
        "7",
        "-7",
        "12",
        "70",
        "700",
        "1000",
        r"10,\!080",
        "123456",
        "3.21",
        "0.85",
        ".0000672",
    ),
    *(r"\frac{1}{3}", r"-\frac{1}{3}", r"\frac{2}{3}", r"\frac34", r"1\frac{4}{5}", r"\frac{14}{3}", "0.33"),
    *(
        r"\sqrt{2}",
        r"2\sqrt{2}",
        r"\sqrt{13}",
        r"3\sqrt{13}",
        r"1+\sqrt{2}",
        r"1-\sqrt{2}",
        r"1 \pm \sqrt{2}",
    ),
    *(r"\pi", r"2\pi", r"\frac{\pi}{2}", r"18+2\pi", "e", "e^{2}", "e^{-2}", r"\ln 2", r"\infty", r"-\infty"),
    *("i", "6-5i", "6+5i", "1+2i", "2+i", r"45^\circ", r"30^\circ", r"55\%", r"\$36", r"5.4 \text{ cents}"),
    *("x=5", "x=6", "y=5x", "y=2x+3", "y=2x-3", "2x+3y=1", "2x+3y<1", "2x+3y>1", "m^2+1=0"),
    *("1,-2", "1,2", "1,2,3", "3,5,8", "(1,2)", "(2,1)", "(1,2,3)", "(3,2,1)", "[1,2]", "(1,2]", "[1,2)"),
    *(
        r"\{1,2,4\}",
        r"\{4\} \cup \{9\}",
        r"(1,\infty)",
        r"[1,\infty)",
        r"(-\infty,1)",
        r"(1,2)\cup(3,4)",
        "x<3",
    ),
    *("x^2", "x^3", "x^2+1", "(x+1)^2", "2x", r"\cot x", r"\tan x", r"\sin 2x", "2k+2", "5r^5", "p-q", "q-p"),
    *(
        "52_8",
        "52_7",
        "25_8",
        r"\text{even}",
        r"\text{odd}",
        "Yes",
        "No",
        r"\text{(B)}",
        r"\text{(D)}",
        "Evelyn",
    ),
    *(
        r"\begin{pmatrix}1\\2\end{pmatrix}",
        r"\begin{pmatrix}1&2\end{pmatrix}",
        r"\begin{pmatrix}2\\1\end{pmatrix}",
    ),
    *(r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\mathbb{R}", r"\mathbb{Z}_2", "2^{98}", "2^{99}", "3^{-40}"),
    *(
        "3^{-41}",
        "10^{100}",
        "10^{100}+1",
        r"\binom{50}{25}",
        "30!",
        "2^n",
        r"2^{2^n}",
        r"\text{no solution}",
    ),
]


def test_every_gold_equals_itself_and_no_other():
    equal = [(a, b) for a, b in itertools.permutations(GOLDS, 2) if grade(f"\\boxed{{{a}}}", b).correct]
    assert equal == [("\\frac{1}{3}", "0.33")]  # a gold decimal stands for the fraction it was rounded from
    for gold in GOLDS:
        for text in (
            gold,
            f"${gold}$",
            f"So \\boxed{{{gold}}}.",
            f"Answer: {gold}",
            f"<answer>{gold}</answer>",
        ):
            assert grade(text, gold).correct, text


def test_small_integers():
    for n in range(1000):
        assert grade(f"\\boxed{{{n}}}", str(n)).correct
        assert not grade(f"\\boxed{{{n}}}", str((n + 1) % 1000)).correct


# Random text.

FRAGMENTS = [
    *(
        r"\boxed{",
        r"\fbox",
        r"\frac",
        r"\sqrt",
        r"\left(",
        r"\right)",
        r"\text{",
        r"\begin{pmatrix}",
        r"\\",
        "&",
    ),
    *(
        r"\end{pmatrix}",
        "<answer>",
        "</answer>",
        "<think>",
        "</think>",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "$",
        "^",
        "_",
    ),
    *(
        "1",
        "2",
        "9",
        "42",
        "0",
        ".",
        ",",
        " ",
        "\n",
        "x",
        "y",
        "e",
        "i",
        "-",
        "+",
        "*",
        "/",
        "=",
        "<",
        ">",
        "!",
        "|",
    ),
    *(
        r"\pm",
        r"\cup",
        r"\infty",
        r"\pi",
        r"\%",
        "%",
        r"\circ",
        " or ",
        " and ",
        "Answer: ",
        "The answer is ",
    ),
    *(
        r"\,",
        r"\!",
        "½",
        "²",
        "−",
        "√",
        "°",
        "∞",
        "\x00",
        "\u200b",
        "\ud800",
        "yes",
        "sin",
        r"\log_",
        "cm",
        ";",
        ":",
    ),
    *(
        r"\{",
        r"\}",
        r"\in",
        r"\setminus",
        r"\mathbb{R}",
        r"\approx",
        "'",
        '"',
        "«",
        "»",
        "¶",
        "٣",
        r"\overline{3}",
    ),
]
SOUP = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join),
    st.text(max_size=60),
    st.text(alphabet="0123456789.,^_{}()[]+-*/\\ xe", max_size=40),
    st.binary(max_size=40).map(lambda raw: raw.decode("latin-1")),
)


@pytest.fixture(scope="module")
def pool():
    with MathPool(workers=1, timeout=20.0) as pool:
        yield pool


@given(text=SOUP, gold=st.one_of(st.sampled_from(GOLDS), SOUP))
@FUZZ
def test_any_text_has_one_verdict(pool, text, gold):
    """In a worker, so that a hang is a failure; two times, as caches must not change a verdict."""
    rows = [(text, gold), (f"\\boxed{{{text}}}", gold), (text, text)]
    first, second = pool.grade_many(rows), pool.grade_many(rows)
    assert first == second
    assert not [v for v in first if v.reason.split(":")[0] in ("timeout", "crash", "memory", "error")]
    if gradable(gold):
        assert not first[0].correct and not first[1].correct


RATIONALS = st.fractions(min_value=-2000, max_value=2000, max_denominator=40)


def spellings(value: Fraction) -> list[str]:
    """Ways to write a rational number."""
    top, bottom, sign = abs(value.numerator), value.denominator, "-" * (value < 0)
    out = [
        f"{sign}\\frac{{{top}}}{{{bottom}}}",
        f"{sign}{top}/{bottom}",
        f"\\dfrac{{{sign}{3 * top}}}{{{3 * bottom}}}",
    ]
    out += [
        f"x = {sign}{top} / {bottom}",
        f"{sign}{100 * top}/{bottom}\\%",
        f"−{top}/{bottom}" if sign else out[0],
    ]
    if bottom == 1:
        out += [f"{sign}{top:,}", f"{sign}{top}.0", f"${sign}{top}$", f"{sign}{top} \\text{{ meters}}"]
    elif top > bottom:
        out += [f"{sign}{top // bottom}\\frac{{{top % bottom}}}{{{bottom}}}"]
        out += [f"{sign}{top // bottom} {top % bottom}/{bottom}"]
    if 1000 % bottom == 0:
        out += [f"{sign}{top * 1000 // bottom / 1000:.3f}", f"{sign}{top * 1000 // bottom}\\times 10^{{-3}}"]
    return out


@given(data=st.data(), a=RATIONALS, b=RATIONALS)
@FUZZ
def test_rational_numbers(data, a, b):
    """Right exactly when the values are equal, whatever the spelling."""
    gold = f"\\frac{{{b.numerator}}}{{{b.denominator}}}"
    answer = data.draw(st.sampled_from(spellings(a)))
    asked_percent = answer.endswith("%") and 100 * a == b and abs(b) > 1  # 15% answers "what percent": 15
    assert grade(answer, gold).correct == (a == b or asked_percent)
    assert grade(data.draw(st.sampled_from(spellings(b))), gold).correct


@given(coefficients=st.lists(st.integers(-9, 9), min_size=1, max_size=5), delta=st.integers(-3, 3))
@FUZZ
def test_polynomials(coefficients, delta):
    terms = [f"{c}x^{{{i}}}" for i, c in enumerate(coefficients)]
    nested = "0"
    for c in reversed(coefficients):
        nested = f"({nested})x+({c})"
    assert grade(f"{nested}+({delta})", "+".join(reversed(terms)).replace("+-", "-")).correct == (delta == 0)
