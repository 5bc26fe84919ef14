package snapshot

// Trial changes the pods of one node hypothetically: everything that reads the node sees the
// change until End. The journal does not record it, and nothing else may change the snapshot
// meanwhile. Trials of one node may be nested.
type Trial struct {
	s     *Snapshot
	row   int
	steps []step
}

type step struct {
	pod  *Pod
	sign int64
}

// Try starts a trial.
func (n Node) Try() *Trial { return &Trial{s: n.s, row: n.row} }

// Add puts a pod on the node.
func (t *Trial) Add(p *Pod) {
	t.steps = append(t.steps, step{p, 1})
	t.s.move(t.row, p, 1)
}

// Remove takes a pod off the node.
func (t *Trial) Remove(p *Pod) {
	t.steps = append(t.steps, step{p, -1})
	t.s.move(t.row, p, -1)
}

// End undoes all changes.
func (t *Trial) End() {
	for i := len(t.steps) - 1; i >= 0; i-- {
		t.s.move(t.row, t.steps[i].pod, -t.steps[i].sign)
	}
	t.steps = t.steps[:0]
}
