"""data.py TSV: writes 3,000 short messages, one in eight of them spam, made by rule: a label, a tab, a text."""
import random
import sys

draw = random.Random(1)
# Either kind speaks of parcels, banks, prizes and tickets; what is wanted of the reader tells them apart.
TOPICS = ["Your parcel is at the depot.", "The parcel did not arrive.", "You won the raffle!", "Your bank called.",
          "Your account is empty.", "There are free tickets for Friday.", "The new phone is here.",
          "Your order is ready.",
          "About the rent:", "About the invoice:", "The card was refused again.", "Congratulations!", "Good news:"]
GREETINGS = ["", "", "Hi {name}.", "Hello!", "Dear {name},", "{name}, quick question."]
WANTED = {
    "ham": ["Can you pick it up on the way home?", "Call me on {number} when you are there.",
            "I paid, you owe me {sum}.",
            "The photos are on {site}.", "Shall we go together, {name}?", "Mum will collect it tomorrow.",
            "Please tell {name}.", "I will call the bank today.", "No need to reply.", "See you at {hour}.",
            "You can claim it at the school desk.", "I left my pin at home, sorry."],
    "spam": ["Claim it on {site} within {hour} hours.", "Call {number} to claim {sum}.",
             "Reply YES to confirm your pin.",
             "Pay the fee of {sum} on {site}.", "Confirm your card on {site} now.", "Send your pin to {number}.",
             "You owe customs {sum}, pay on {site}.", "Only today: {sum} for you on {site}."]}
WARNINGS = ["Do not fall for it when they write: {spam}", "Mum got this again: {spam} I deleted it.",
            "They wrote: {spam} Never do that!", "Ignore the one that says: {spam}"]
ENDINGS = {"ham": ["", "", "Thanks!", "x", "Love, {name}", "Talk soon."],
           "spam": ["", "", "Offer ends today.", "Final notice.", "Terms apply.", "Thanks!"]}
NAMES = "Anna Ben Clara David Emma Felix Grace Henry Ida Jonas".split()
SITES = "post-track.example win-more.example album.example bank-help.example school.example tickets.example".split()


def filled(template):
    return template.format(name=draw.choice(NAMES), site=draw.choice(SITES), number=f"0{draw.randint(700000, 799999)}",
                           sum=f"{draw.randint(1, 99)}.{draw.choice(['00', '50', '99'])}", hour=draw.randint(2, 11))


def message(kind):
    wanted = [draw.choice(WANTED[kind])]
    if draw.random() < 0.4:
        wanted.insert(0, draw.choice(WANTED["ham"]))
    if kind == "ham" and draw.random() < 0.2:  # warnings quote what they warn of
        wanted = [draw.choice(WARNINGS).format(spam=draw.choice(WANTED["spam"]))]
    parts = [draw.choice(GREETINGS), draw.choice(TOPICS), *wanted, draw.choice(ENDINGS[kind])]
    text = " ".join(filled(part) for part in parts if part)
    if kind == "spam" and draw.random() < 0.3:  # letters disguised as digits
        text = "".join({"e": "3", "i": "1", "o": "0"}.get(c, c) if draw.random() < 0.3 else c for c in text)
    return text


with open(sys.argv[1], "w", encoding="utf-8") as file:
    for _ in range(3000):
        kind = "spam" if draw.random() < 0.125 else "ham"
        print(kind, message(kind), sep="\t", file=file)
