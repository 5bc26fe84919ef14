package endpoints

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage"
)

// applyFactor is how much more than decoding a configuration it takes to merge
// it: the merge makes several trees of it.
const applyFactor = 4

// What it takes to encode an object in another form than it is kept in.
const (
	perRow      = 4 << 10 // a table's row, or an object's metadata
	yamlPerByte = 100     // of the same text as JSON
	textPerByte = 4       // likewise, indented
	maxAsYAML   = 4 << 20
)

// claim waits for the memory that decoding a body takes, and holds it until the
// answer begins. An error says that the body is too large once it is decoded.
func (c *call) claim(data []byte, media string) error {
	cost, err := budget.Cost(data, media)
	if err != nil {
		return err
	}
	if media == applyYAML {
		cost *= applyFactor
	}
	req := request.From(c.ctx)
	release, err := req.Memory.Acquire(c.ctx, req.Flow, cost)
	if err != nil {
		return err
	}
	if cost > budget.Small {
		req.Hold(release)
	}
	if err := budget.Check(data, media); err != nil {
		return err
	}
	return c.ctx.Err()
}

// claimAnswer waits for the memory that answering with a page takes: none where
// its objects are sent as they are kept.
func (c *call) claimAnswer(f wire.Format, p page) (release func(), err error) {
	readable := f.Media == scheme.YAML || f.Pretty
	if f.As == nil && !readable {
		return func() {}, nil
	}
	size := int64(0)
	for _, e := range p.entries {
		data, err := e.Proto()
		if err != nil {
			return nil, err
		}
		size += int64(len(data))
	}
	return c.claimText(f, size+perRow*int64(len(p.entries)), size)
}

// claimText waits for the memory that answering with size bytes of text in the
// form f takes, beside cost.
func (c *call) claimText(f wire.Format, cost, size int64) (release func(), err error) {
	switch {
	case f.Media == scheme.YAML && size > maxAsYAML:
		return nil, wire.TooLargeFor(f.Media, maxAsYAML)
	case f.Media == scheme.YAML:
		cost += yamlPerByte * size
	case f.Pretty:
		cost += textPerByte * size
	}
	req := request.From(c.ctx)
	return req.Memory.Acquire(c.ctx, req.Flow, cost)
}

// trackable is an error if an object is too large to be stored, or has so many
// fields that to track their owners takes too long. It is asked before they are
// tracked.
func trackable(obj scheme.Object) error {
	size := obj.(protoMessage).Size()
	if size > storage.MaxValue {
		return storage.ErrTooLarge
	}
	if size <= budget.FewFields {
		return nil
	}
	bare, err := scheme.BareProto(obj)
	if err != nil {
		return err
	}
	return budget.TrackWork(bare)
}

// storable is an error if the object that an applied configuration makes is
// too large to be stored, whatever it is merged with, or not trackable.
func (r *resource) storable(applied *unstructured.Unstructured) error {
	if err := budget.TrackTreeWork(applied.Object); err != nil {
		return err
	}
	obj := r.New()
	if runtime.DefaultUnstructuredConverter.FromUnstructured(applied.Object, obj) != nil {
		return nil // the merge says what is wrong
	}
	if obj.(protoMessage).Size()+budget.ManagedSize(applied.Object) > storage.MaxValue {
		return storage.ErrTooLarge
	}
	return nil
}
