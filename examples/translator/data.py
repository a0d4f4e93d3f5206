"""data.py TSV: writes 8,000 English sentences with their German translations, made by rule.

What a dictionary alone gets wrong: three genders, the endings of articles and adjectives in two cases, and verbs that
stand second in a main clause and last after "that", "because" or a modal verb.
"""
import random
import sys

draw = random.Random(1)
GENDERS = {"m": "man=Mann dog=Hund apple=Apfel letter=Brief cake=Kuchen teacher=Lehrer tree=Baum",
           "f": "woman=Frau cat=Katze flower=Blume newspaper=Zeitung lamp=Lampe doctor=Ärztin bottle=Flasche",
           "n": "child=Kind book=Buch house=Haus picture=Bild bicycle=Fahrrad girl=Mädchen horse=Pferd"}
NOUNS = [(*pair.split("="), gender) for gender, pairs in GENDERS.items() for pair in pairs.split()]
WHO = [noun for noun in NOUNS if noun[0] in "man dog teacher woman cat doctor child girl horse".split()]
ADJECTIVES = [pair.split("=") for pair in "old=alt small=klein young=jung big=groß red=rot new=neu green=grün "
              "beautiful=schön strange=seltsam tired=müd".split()]
VERBS = [pair.split("=") for pair in "see=sieht=sehen find=findet=finden buy=kauft=kaufen paint=malt=malen "
         "carry=trägt=tragen look_for=sucht=suchen bring=bringt=bringen need=braucht=brauchen".split()]
MODALS = [pair.split("=") for pair in "can=kann must=muss wants_to=will should=soll may=darf".split()]
TIMES = [pair.split("=") for pair in "today=heute now=jetzt in_the_garden=im_Garten often=oft "
         "in_the_evening=am_Abend sometimes=manchmal".split()]
THE = {"nominative": {"m": "der", "f": "die", "n": "das"}, "accusative": {"m": "den", "f": "die", "n": "das"}}
A = {"nominative": {"m": "ein", "f": "eine", "n": "ein"}, "accusative": {"m": "einen", "f": "eine", "n": "ein"}}
AFTER_A = {"nominative": {"m": "er", "f": "e", "n": "es"}, "accusative": {"m": "en", "f": "e", "n": "es"}}


def phrase(nouns, case):
    english, german, gender = draw.choice(nouns)
    definite, ending = draw.random() < 0.5, ""
    if draw.random() < 0.6:
        adjective = draw.choice(ADJECTIVES)
        ending = AFTER_A[case][gender]
        if definite:
            ending = "en" if (case, gender) == ("accusative", "m") else "e"
        english, german = f"{adjective[0]} {english}", f"{adjective[1]}{ending} {german}"
    article = "the" if definite else "an" if english[0] in "aeiou" else "a"
    return f"{article} {english}", f"{(THE if definite else A)[case][gender]} {german}"


def clause(order):
    """English and German; order: "second" (the verb), "inverted" (before the subject), "last"."""
    (who, wer), (whom, wen) = phrase(WHO, "nominative"), phrase(NOUNS, "accusative")
    verb, finite, infinitive = draw.choice(VERBS)
    if draw.random() < 0.5:
        modal, finite = draw.choice(MODALS)
        english, rest = f"{who} {modal} {verb} {whom}", [wen, infinitive]
    else:
        third = "carries" if verb == "carry" else verb.replace("look", "looks") if "_" in verb else verb + "s"
        english, rest = f"{who} {third} {whom}", [wen]
    german = {"second": [wer, finite, *rest], "inverted": [finite, wer, *rest], "last": [wer, *rest, finite]}[order]
    return english, " ".join(german)


def sentence():
    kind = draw.randrange(4)
    if kind == 0:
        english, german = clause("second")
    elif kind == 1:
        (time, zeit), (english, german) = draw.choice(TIMES), clause("inverted")
        english, german = f"{time} {english}", f"{zeit} {german}"
    elif kind == 2:
        (knows, knows_german), (english, german) = phrase(WHO, "nominative"), clause("last")
        english, german = f"{knows} knows that {english}", f"{knows_german} weiß , dass {german}"
    else:
        (first, erst), (english, german) = clause("second"), clause("last")
        english, german = f"{first} because {english}", f"{erst} , weil {german}"
    return f"{english} .".replace("_", " "), f"{german} .".replace("_", " ")


pairs = {}
while len(pairs) < 8000:
    english, german = sentence()
    pairs[english] = german
with open(sys.argv[1], "w", encoding="utf-8") as file:
    for english, german in pairs.items():
        print(english, german, sep="\t", file=file)
