// Package helptext wraps the help texts of commands.
package helptext

import (
	"strings"

	"github.com/spf13/cobra"
)

// width is the width of help texts in columns.
const width = 98

// Wrap wraps the descriptions and the flags of cmd and of all commands below it.
func Wrap(cmd *cobra.Command) {
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 98 "))
	var each func(*cobra.Command)
	each = func(c *cobra.Command) {
		c.Long = wrap(c.Long, width)
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(cmd)
}

// wrap breaks the paragraphs of text at width. Lines that begin with a space stay as they are.
func wrap(text string, width int) string {
	var out []string
	column := 0 // of the paragraph's last line; 0: a new paragraph begins
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || strings.HasPrefix(line, " ") {
			out, column = append(out, line), 0
			continue
		}
		for _, word := range strings.Fields(line) {
			n := len([]rune(word))
			if column == 0 || column+1+n > width {
				out, column = append(out, word), n
				continue
			}
			out[len(out)-1] += " " + word
			column += 1 + n
		}
	}
	return strings.Join(out, "\n")
}
