package jobstore

// Group selects the jobs that share a name or a key. Equal Groups select the same jobs.
type Group struct {
	By GroupBy
	// Name is the name of the jobs. "" with BySequence.
	Name string
	// Key is the key that the jobs share. "" with ByName and ByMockName.
	Key string
}

// GroupBy names the fields that the jobs of a [Group] share.
type GroupBy int

// The fields that the jobs of a group share.
const (
	ByKey       GroupBy = iota // Name and Key
	ByUniqueKey                // Name and UniqueKey
	BySequence                 // SequenceKey
	ByName                     // Name, of jobs that are [Row.Unique] and not Mock
	ByMockName                 // Name, of jobs that are [Row.Unique] and Mock
)

// Unique reports whether jobs.Spec.Unique must take the job into account. It must, unless the job
// has a queue, or its record only stays for a time after a success.
func (j *Row) Unique() bool { return j.Queue == "" && (j.Expires.IsZero() || j.State == Failed) }

// Names returns the group of the unique jobs with the Name and the Mock of j.
func (j *Row) Names() Group {
	if j.Mock {
		return Group{By: ByMockName, Name: j.Name}
	}
	return Group{By: ByName, Name: j.Name}
}

// Keys returns the groups of the UniqueKey and of the Key of j, as far as they are set.
func (j *Row) Keys() []Group {
	var keys []Group
	if j.UniqueKey != "" {
		keys = append(keys, Group{By: ByUniqueKey, Name: j.Name, Key: j.UniqueKey})
	}
	if j.Key != "" {
		keys = append(keys, Group{By: ByKey, Name: j.Name, Key: j.Key})
	}
	return keys
}

// In reports whether the job belongs to the group g. A group with an empty key has no jobs.
func (j *Row) In(g Group) bool {
	switch g.By {
	case ByKey:
		return j.Name == g.Name && j.Key == g.Key && g.Key != ""
	case ByUniqueKey:
		return j.Name == g.Name && j.UniqueKey == g.Key && g.Key != ""
	case BySequence:
		return j.SequenceKey == g.Key && g.Key != ""
	}
	return j.Unique() && j.Names() == g
}
