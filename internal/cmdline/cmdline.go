// Package cmdline writes command lines that people paste into a shell.
package cmdline

import "strings"

// plain are the characters that a shell takes as they are.
const plain = "-_./:=@%+,0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Swarmiji returns a line of the program swarmiji with these arguments, each of them quoted.
func Swarmiji(args ...string) string {
	line := "swarmiji"
	for _, a := range args {
		line += " " + Quote(a)
	}
	return line
}

// Quote returns a word for a POSIX shell. A word of plain characters stays as it is.
func Quote(word string) string {
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
