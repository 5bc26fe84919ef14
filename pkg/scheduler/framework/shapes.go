package framework

import "podium/pkg/scheduler/snapshot"

// maxShapes is how many shapes are cached; a busy cluster has few at a time.
const maxShapes = 128

// shapes caches the answers by shape, and their parts. It evicts the least recently used shape.
type shapes struct {
	by    map[string]*shapeEntry
	parts map[partKey]*part
	clock int64
}

type shapeEntry struct {
	answers *answers
	used    int64
}

// partKey is a plugin's index and its part of the shape.
type partKey struct {
	plugin int
	reads  string
}

func newShapes() shapes {
	return shapes{by: map[string]*shapeEntry{}, parts: map[partKey]*part{}}
}

// get returns the answers for a shape. It calls make if they are not cached.
func (s *shapes) get(shape []byte, make func() *answers) *answers {
	e := s.by[string(shape)]
	if e == nil {
		e = &shapeEntry{answers: make()}
		if len(s.by) >= maxShapes {
			e.answers.recycle(s.drop())
		}
		s.by[string(shape)] = e
	}
	s.clock++
	e.used = s.clock
	return e.answers
}

// part returns what a plugin answers for the pod, for one more shape.
func (s *shapes) part(key partKey, plugin Weighted, pod *snapshot.Pod) *part {
	p := s.parts[key]
	if p == nil {
		p = newPart(plugin, pod)
		s.parts[key] = p
	}
	p.share()
	return p
}

func (s *shapes) drop() *answers {
	oldest := ""
	for name, e := range s.by {
		if oldest == "" || e.used < s.by[oldest].used {
			oldest = name
		}
	}
	out := s.by[oldest].answers
	delete(s.by, oldest)
	for _, key := range out.parts {
		if p := s.parts[key]; p.shapes > 1 {
			p.shapes--
		} else {
			delete(s.parts, key)
		}
	}
	return out
}
