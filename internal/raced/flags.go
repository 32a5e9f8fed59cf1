package raced

// Flags returns the flags with which the go command builds as this program was built: "-race" or
// none.
func Flags() []string {
	if Enabled {
		return []string{"-race"}
	}
	return nil
}
