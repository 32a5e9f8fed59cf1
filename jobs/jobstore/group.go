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

// Unique reports whether jobs.Spec.Unique finds the job, so that it prevents a second one of its
// name. It does unless the job has a queue, or has an Expires without being FAILED: its record is
// then only retained.
func (j *Row) Unique() bool { return j.Queue == "" && (j.Expires.IsZero() || j.State == Failed) }

// Names returns the group of the unique jobs with the Name and the Mock of j: ByName, or ByMockName
// for a mock job. It does not check that j itself belongs to it.
func (j *Row) Names() Group {
	if j.Mock {
		return Group{By: ByMockName, Name: j.Name}
	}
	return Group{By: ByName, Name: j.Name}
}

// Keys returns the group of the UniqueKey of j, then the group of its Key, as far as they are set.
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

// In reports whether the job belongs to the group g. A group by a key with an empty Key has no
// jobs. A group by name contains only jobs that are [Row.Unique].
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
