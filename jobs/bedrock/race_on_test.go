//go:build race

package bedrock

// raced reports that the race detector is active; tests then use fewer iterations.
const raced = true
