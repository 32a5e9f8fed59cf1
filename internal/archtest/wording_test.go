package archtest

import (
	"errors"
	"os"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

// TestWording checks every comment and every page of the tree. Line length and wording are counted
// apart.
func TestWording(t *testing.T) {
	files, err := projectFiles(rootDir)
	if err != nil {
		t.Fatal(err)
	}
	words, columns := 0, 0
	for _, name := range files {
		slash := filepath.ToSlash(name)
		page := strings.HasSuffix(slash, ".md")
		if !page && !strings.HasSuffix(slash, ".go") || strings.Contains(slash, "testdata/") || strings.HasPrefix(slash, "internal/archtest/wording") {
			continue // wording.go quotes what it refuses
		}
		text, err := readText(filepath.Join(rootDir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // another test's file that came and went
		}
		if err != nil {
			t.Fatal(err)
		}
		var wording, long []string
		if page {
			wording, long = checkMarkdown(slash, text)
		} else if wording, long, err = checkComments(slash, text); err != nil {
			t.Error(err)
		}
		words, columns = words+len(wording), columns+len(long)
		report(t, wording)
		report(t, long)
	}
	t.Logf("%d places of wording, %d long lines", words, columns)
}

// The pairs show the sentences that each rule refuses, and a sentence in its place.
func TestWordingRules(t *testing.T) {
	for _, tt := range []struct{ rule, bad, good string }{
		{"who", "Call it for who waits.", "Call it for the waiting process."},
		{"somebody", "nil: nobody is asked.", "nil: no process is asked."},
		{"what", "Returns what is left.", "Returns the remaining jobs."},
		{"old word", "Open starts it anew.", "Open starts it again."},
		{"is no", "An error if the id is no number.", "An error if the id is not a number. It is no longer used."},
		{"is to be", "The record that is to be written.", "The record to write."},
		{"none", "The queue, if there is none.", "The queue, if no queue exists."},
		{"is there", "ErrNotFound if the job is not there.", "ErrNotFound if the job does not exist."},
		{"goes on", "The handler goes on.", "The handler continues."},
		{"becomes of", "Reports what became of them.", "Reports the outcome of each."},
		{"hands out", "Next hands out a job.", "Next claims a job."},
		{"has it done", "Notify has the job be due.", "Notify makes the job due."},
		{"name is what", "Timeout is how long a handler runs.", "Timeout limits a handler."},
		{"inversion", "Nor does it lock.", "It does not lock either."},
		{"idiom", "It ends of its own accord.", "It ends without a request."},
	} {
		if bad := checkWording(tt.bad); len(bad) == 0 {
			t.Errorf("rule %q does not find %q", tt.rule, tt.bad)
		}
		if bad := checkWording(tt.good); len(bad) > 0 {
			t.Errorf("rule %q refuses %q: %v", tt.rule, tt.good, bad)
		}
	}
	if len(wordingRules) != 15 {
		t.Errorf("%d rules, and 15 are tested", len(wordingRules))
	}
	long := strings.Repeat("word ", maxWords) + "word."
	if len(checkWording(long)) != 1 || len(checkWording(strings.TrimPrefix(long, "word "))) != 0 {
		t.Errorf("a sentence may have %d words", maxWords)
	}
	for _, quoted := range []string{"Prints \"nobody\".", "The line `who` is sent.", "Text.\n\n\tnobody here"} {
		if bad := checkWording(quoted); len(bad) > 0 {
			t.Errorf("%q is quoted: %v", quoted, bad)
		}
	}
}

// TestRuleWords shows that each rule has words with which most texts are passed over, and that the
// words are those of its pattern.
func TestRuleWords(t *testing.T) {
	for _, r := range wordingRules {
		if words := r.pattern.words; len(words) == 0 || slices.Contains(words, "") {
			t.Errorf("the rule %q is tried with every text, or with none: words %q", r.name, words)
		}
	}
	for pattern, want := range map[string][]string{
		`(?i)\b(Who|whom)\b`: {"who"}, `a(bc|d)`: {"a"}, `(abc|de) f`: {"abc", "de"}, `x*`: {""}, `(x|y?)`: {"x", ""}, `(xy)+z`: {"xy"},
	} {
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		if got := wordsOf(re); !slices.Equal(got, want) {
			t.Errorf("words of %s: %q, want %q", pattern, got, want)
		}
	}
}

func TestMarkdownLines(t *testing.T) {
	wide := strings.Repeat("x", maxColumns+1)
	page := "# Title\n\n" + wide + "\n\n| " + wide + " |\n\n```\nwho\n```\n\n- an item of who\n"
	wording, long := checkMarkdown("page.md", []byte(page))
	if len(wording) != 1 || !strings.HasPrefix(wording[0], "page.md:11:") {
		t.Errorf("wording %v, want one of line 11", wording)
	}
	if len(long) != 1 || !strings.HasPrefix(long[0], "page.md:3:") {
		t.Errorf("long lines %v, want line 3 alone: tables may be wider", long)
	}
}
