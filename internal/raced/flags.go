package raced

// Flags returns what the go command needs to build as this program was built: "-race" or nothing.
func Flags() []string {
	if Enabled {
		return []string{"-race"}
	}
	return nil
}
