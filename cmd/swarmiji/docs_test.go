package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
)

// page is docs/cli.md. SWARMIJI_UPDATE=1 writes it.
const page = "../../docs/cli.md"

// every calls f for each visible command.
func every(cmd *cobra.Command, f func(*cobra.Command)) {
	if cmd.Hidden {
		return
	}
	f(cmd)
	for _, sub := range cmd.Commands() {
		every(sub, f)
	}
}

// TestPage compares docs/cli.md with the commands' help.
func TestPage(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# The command line\n\n<!-- Written by TestPage of cmd/swarmiji from the commands' help, with SWARMIJI_UPDATE=1. -->\n\n" +
		"`go install github.com/swarmiji/swarmiji/cmd/swarmiji@latest` installs it. Each section is the\noutput of `swarmiji COMMAND --help`.\n")
	every((&app{&cli.App{}}).root(), func(cmd *cobra.Command) {
		help := &bytes.Buffer{}
		status := run(t.Context(), append(strings.Fields(cmd.CommandPath())[1:], "--help"), cli.Surroundings{
			Stdin: strings.NewReader(""), Stdout: help, Stderr: help, Getenv: func(string) string { return "" },
		})
		if status != 0 {
			t.Errorf("%s --help: status %d", cmd.CommandPath(), status)
		}
		text := help.String()
		if _, globals, ok := strings.Cut(text, "\nGlobal Flags:"); ok { // the first command shows them
			text = strings.TrimSuffix(text, "\nGlobal Flags:"+globals)
		}
		b.WriteString("\n## " + cmd.CommandPath() + "\n\n```text\n" + strings.TrimSpace(text) + "\n```\n")
	})
	if os.Getenv("SWARMIJI_UPDATE") == "1" {
		if err := os.WriteFile(page, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what the commands say; SWARMIJI_UPDATE=1 writes it", page)
	}
}

// TestHelp checks that each command has a description and two examples that begin with its name.
func TestHelp(t *testing.T) {
	every((&app{&cli.App{}}).root(), func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Long == "" {
			t.Errorf("%s has no description", cmd.CommandPath())
		}
		n := 0
		for line := range strings.Lines(cmd.Example) {
			if strings.Contains(line, cmd.CommandPath()) {
				n++
			}
		}
		if n < 2 {
			t.Errorf("%s has %d examples, want 2", cmd.CommandPath(), n)
		}
	})
}
