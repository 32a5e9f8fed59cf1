package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxColumns limits a line of a comment or of Markdown. A tab counts as one column.
const maxColumns = 100

// maxWords limits a sentence.
const maxWords = 25

// wordingRule names wording that readers had to read twice.
type wordingRule struct {
	name    string
	pattern phrase
	instead string
}

// wordingRules lists what CONTRIBUTING.md's section "Words" refuses.
var wordingRules = []wordingRule{
	{"who", mustPhrase(`(?i)\b(who|whom|whoever)\b`), "name the caller, the consumer, the process"},
	{"somebody", mustPhrase(`(?i)\b(no|any|some|every)body('s)?\b`), "name the caller, the consumer, the process"},
	{"what", mustPhrase(`(?i)\bwhat (is|isn't|was|are|were|has|have|had|it|they|a|an|the|comes?|came|waits?|waited|` +
		`remains?|may|can|could|must|cannot|will|would|does|did|follows?|others?|this|that|no|there|we|i|you|one)\b`), "name the thing"},
	{"old word", mustPhrase(`(?i)\b(anew|look(s|ed)? ?outs?|bury|buried|buries|rous(e|es|ed|ing)|mend(s|ed|ing)?|deeds?|` +
		`solitude|in vain|the worse|lest|whither|hitherto|thereby|therein|thereof)\b`), "the field's word: see the glossary"},
	{"is no", mustPhrase(`(?i)\b(there )?(is|was|are|were|be|been) no (\w+)\b`), "is not a"},
	{"is to be", mustPhrase(`(?i)\b(is|are|was|were) to be [a-z]+\b`), "must or will, or an active verb"},
	{"none", mustPhrase(`(?i)\b(there (is|are|was|were) none|nil: none|(has|have|had|names) none|` +
		`th(at|e one|e ones) that is none|those who)\b`), "repeat the noun"},
	{"is there", mustPhrase(`(?i)\b(is|are|was|were) (not )?there\b`), "exists, is stored"},
	{"goes on", mustPhrase(`(?i)\b(go|goes|going|gone|went) on\b`), "continues, keeps running"},
	{"becomes of", mustPhrase(`(?i)\b(became|becomes?) of\b`), "the outcome"},
	{"hands out", mustPhrase(`(?i)\bhand(s|ed|ing)? (it |them |a \w+ |the \w+ )?out\b`), "claim, deliver"},
	{
		"has it done", mustPhrase(`(?i)\b(has|have|having|had) (it|them|another|each|every|the \w+|an? \w+|its \w+) ` +
			`(be|not be|made|done|sent|stored|run|told|called|read|written|kept|handed|asked|tried|tested|looked|wait|do|go|start|end|stop|take|get)\b`),
		"an active verb",
	},
	{"name is what", mustPhrase(`^\S+ (is|are|was|were) (that|what|how|when|why|where|whether)\b`), "begin with a verb"},
	{"inversion", mustPhrase(`(^|[.;:] )(So|Nor|Neither|Never|Only|Nothing else) (is|are|was|do|does|did|has|have|can|may)\b`), "subject, verb, object"},
	{"idiom", mustPhrase(`(?i)\b(of its own accord|by and by|as it were|all the same|now and then|none the)\b`), "a literal phrase"},
}

var (
	// verbatim finds what a comment quotes: code, strings and links.
	verbatim = regexp.MustCompile("`[^`]*`|\"[^\"\n]*\"|\\[[^\\]\n]*\\]|\\]\\([^)]*\\)")
	// sentenceEnd separates sentences and the items of a list.
	sentenceEnd = regexp.MustCompile(`[.!?:;][*)_]* | - `)
	// people finds the nouns that "who" may follow.
	people = regexp.MustCompile(`(?i)\b(engineers?|users?|readers?|authors?|operators?|people|programmers?) who\b`)
	// question finds questions, in which "what" and "who" are in their place.
	question = regexp.MustCompile(`[^.;:!?]*\?`)
	// directive finds comments that tools read.
	directive = regexp.MustCompile(`^//([a-z]+:[a-z]|nolint|line )`)
)

// phrase is a pattern and texts in lower case, one of which every match contains. A search for the
// texts is much faster than that for the pattern.
type phrase struct {
	*regexp.Regexp
	words []string
}

// mustPhrase panics if the pattern is not valid.
func mustPhrase(pattern string) phrase {
	p := phrase{Regexp: regexp.MustCompile(pattern)}
	if parsed, err := syntax.Parse(pattern, syntax.Perl); err == nil {
		p.words = wordsOf(parsed)
	}
	return p
}

// mayMatch reports whether a text may contain the phrase. It gets the text in lower case.
func (p phrase) mayMatch(lower string) bool {
	return slices.ContainsFunc(p.words, func(w string) bool { return strings.Contains(lower, w) })
}

// wordsOf returns texts in lower case, one of which every match of re contains. The empty text,
// which every text contains, stands for a match that may have any text.
func wordsOf(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(re.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return wordsOf(re.Sub[0])
	case syntax.OpAlternate:
		var words []string
		for _, sub := range re.Sub {
			words = append(words, wordsOf(sub)...)
		}
		return words
	case syntax.OpConcat:
		best := []string{""}
		for _, sub := range re.Sub {
			if words := wordsOf(sub); shortest(words) > shortest(best) {
				best = words
			}
		}
		return best
	default:
		return []string{""}
	}
}

// shortest returns the length of the shortest word.
func shortest(words []string) int {
	n := math.MaxInt
	for _, w := range words {
		n = min(n, len(w))
	}
	return n
}

// checkWording returns the rules that the prose of one comment or paragraph breaks.
//
// Lines of code (indented by a tab or by four spaces) are left out.
func checkWording(prose string) []string {
	var lines []string
	for line := range strings.SplitSeq(prose, "\n") {
		if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "    ") {
			lines = append(lines, line)
		}
	}
	flat := strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
	if strings.ContainsAny(flat, "`\"[]") { // ask first what costs less, here and below
		flat = verbatim.ReplaceAllString(flat, "X")
	}
	var bad []string
	statements := flat
	if strings.Contains(flat, "?") {
		statements = question.ReplaceAllString(flat, "")
	}
	if strings.Contains(strings.ToLower(statements), " who") {
		statements = people.ReplaceAllString(statements, "")
	}
	lower := strings.ToLower(statements)
	for _, r := range wordingRules {
		if !r.pattern.mayMatch(lower) {
			continue
		}
		for _, m := range r.pattern.FindAllStringSubmatch(statements, -1) {
			if r.name == "is no" && (m[1] != "" || m[3] == "longer" || m[3] == "more" || m[3] == "other") {
				continue
			}
			bad = append(bad, fmt.Sprintf("%q: %s", strings.TrimSpace(m[0]), r.instead))
		}
	}
	for _, s := range sentenceEnd.Split(flat, -1) {
		if n := len(strings.Fields(s)); n > maxWords {
			bad = append(bad, fmt.Sprintf("a sentence of %d words, the limit is %d: %.40s…", n, maxWords, s))
		}
	}
	return bad
}

// checkComments returns the badly worded comments of a Go file, and the lines that are too long.
func checkComments(name string, src []byte) (wording, long []string, err error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	lines := strings.Split(string(src), "\n")
	for _, g := range f.Comments {
		prose := proseOf(g)
		if prose == "" {
			continue // the output of an Example has the width of the program's output
		}
		for _, b := range checkWording(prose) {
			wording = append(wording, fmt.Sprintf("%s:%d: %s", name, set.Position(g.Pos()).Line, b))
		}
		for _, c := range g.List {
			from, to := set.Position(c.Pos()), set.Position(c.End()).Line
			for n := from.Line; n <= to && !directive.MatchString(c.Text); n++ {
				if w := utf8.RuneCountInString(lines[n-1]); w > maxColumns && !strings.Contains(lines[n-1], "https://") {
					long = append(long, fmt.Sprintf("%s:%d: %d columns, the limit is %d", name, n, w, maxColumns))
				}
			}
		}
	}
	return wording, long, nil
}

// proseOf returns the text of a comment without directives. It is empty for the expected output of
// an Example.
func proseOf(g *ast.CommentGroup) string {
	var prose []string
	for _, c := range g.List {
		if directive.MatchString(c.Text) {
			continue
		}
		text := strings.TrimPrefix(c.Text, "//")
		prose = append(prose, strings.TrimPrefix(text, " "))
	}
	first := strings.TrimSpace(strings.Join(prose, " "))
	if strings.HasPrefix(first, "Output:") || strings.HasPrefix(first, "Unordered output:") || strings.HasPrefix(first, "Code generated") {
		return ""
	}
	return strings.Join(prose, "\n")
}

// checkMarkdown returns the paragraphs of a Markdown page that are worded badly, and the lines that
// are too long. Tables may be wider; code is checked for its width alone.
func checkMarkdown(name string, page []byte) (wording, long []string) {
	var paragraph []string
	start, code := 0, false
	flush := func() {
		for _, b := range checkWording(strings.Join(paragraph, "\n")) {
			wording = append(wording, fmt.Sprintf("%s:%d: %s", name, start, b))
		}
		paragraph = nil
	}
	for i, line := range strings.Split(string(page), "\n") {
		table := strings.HasPrefix(strings.TrimSpace(line), "|")
		if w := utf8.RuneCountInString(line); w > maxColumns && !table && !strings.Contains(line, "](http") {
			long = append(long, fmt.Sprintf("%s:%d: %d columns, the limit is %d", name, i+1, w, maxColumns))
		}
		fence := strings.HasPrefix(strings.TrimSpace(line), "```") || line == "<!-- go" || code && line == "-->"
		if fence || code || table || strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			flush()
			if fence {
				code = !code
			}
			if table {
				for cell := range strings.SplitSeq(line, "|") {
					for _, b := range checkWording(strings.TrimSpace(cell)) {
						wording = append(wording, fmt.Sprintf("%s:%d: %s", name, i+1, b))
					}
				}
			}
			continue
		}
		if item := strings.HasPrefix(strings.TrimSpace(line), "- "); item || len(paragraph) == 0 {
			flush()
			start = i + 1
		}
		paragraph = append(paragraph, strings.TrimSpace(line))
	}
	flush()
	return wording, long
}
