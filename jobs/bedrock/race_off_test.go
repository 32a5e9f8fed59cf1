//go:build !race

package bedrock

const raced = false
