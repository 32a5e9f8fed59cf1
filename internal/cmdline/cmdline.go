// Package cmdline writes command lines that people paste into a shell.
package cmdline

import "strings"

// plain are the characters that a shell takes as they are.
const plain = "-_./:=@%+,0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Swarmiji returns a command line for a POSIX shell: the program swarmiji with these arguments,
// each quoted if needed.
func Swarmiji(args ...string) string {
	line := "swarmiji"
	for _, a := range args {
		line += " " + Quote(a)
	}
	return line
}

// Quote returns word in a form that a POSIX shell reads as the same word: in quotes, unless all its
// characters are plain.
func Quote(word string) string {
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
