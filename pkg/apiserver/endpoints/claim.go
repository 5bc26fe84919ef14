package endpoints

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage"
)

// applyFactor is the memory for merging an applied configuration as a multiple of
// the memory for decoding it: the merge builds several trees.
const applyFactor = 4

// The memory needed to encode an object in a form that the cache does not hold, in
// bytes.
const (
	perRow      = 4 << 10 // a row of a table, or the metadata of an object
	yamlPerByte = 100     // per byte of the same object as JSON
	textPerByte = 4       // per byte of JSON, for indented JSON
	maxAsYAML   = 4 << 20
)

// claim blocks until it is a large body's turn and the memory for decoding it is available, and holds
// both until the response begins. It returns an error if the decoded body would be too
// large, or if the request ends first.
func (c *call) claim(data []byte, media string) error {
	cost, err := budget.Cost(data, media)
	if err != nil {
		return err
	}
	if media == applyYAML {
		cost *= applyFactor
	}
	req := request.From(c.ctx)
	if cost > budget.Small {
		done, err := c.takeTurn()
		if err != nil {
			return err
		}
		release, err := req.Memory.Acquire(c.ctx, req.Flow, cost)
		if err != nil {
			done()
			return err
		}
		req.Hold(func() { release(); done() })
	}
	if err := budget.Check(data, media); err != nil {
		return err
	}
	return c.ctx.Err()
}

// claimAnswer blocks until the memory for encoding a page is available; release
// returns it. A page that is sent in its cached encoding needs no memory.
func (c *call) claimAnswer(f wire.Format, p page) (release func(), err error) {
	readable := f.Media == scheme.YAML || f.Pretty
	if f.As == nil && !readable {
		return func() {}, nil
	}
	size := int64(0)
	for _, e := range p.entries {
		data, err := e.Message()
		if err != nil {
			return nil, err
		}
		size += int64(data.Len())
	}
	return c.claimText(f, size+perRow*int64(len(p.entries)), size)
}

// claimText blocks until the memory for encoding size bytes of JSON in the form f,
// plus cost bytes, is available; release returns it.
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

// trackable returns an error if an object is too large to be stored, or has so many
// fields that tracking their managers takes too long. Call it before tracking them.
func (r *resource) trackable(obj scheme.Object) error {
	size := r.codec.size(obj)
	if size > storage.MaxValue {
		return storage.ErrTooLarge
	}
	if size <= budget.FewFields {
		return nil
	}
	return r.codec.trackWork(obj)
}

// storable returns an error if an applied configuration cannot result in an object
// that fits the store, whatever it is merged with, or if it is not trackable.
func (v *version) storable(applied *unstructured.Unstructured) error {
	if err := budget.TrackTreeWork(applied.Object); err != nil {
		return err
	}
	obj, err := v.structured(applied)
	if err != nil {
		return nil // the merge reports the error
	}
	if v.codec.size(obj)+budget.ManagedSize(applied.Object) > storage.MaxValue {
		return storage.ErrTooLarge
	}
	return nil
}
