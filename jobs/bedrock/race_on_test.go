//go:build race

package bedrock

// raced: everything is slower, and there is less of it.
const raced = true
