package sqloutbox

// ReadText returns the statement of Read.
func ReadText(s *Store) string { return s.text.read }
