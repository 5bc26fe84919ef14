package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"podium/pkg/client"
)

// Registers are ConfigMaps that several clients read, write, and change by
// compare-and-swap at once. It records what each client asked and was told, so that
// Check can tell whether some order explains all answers. It is safe for concurrent use.
type Registers struct {
	Names []string

	begin time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
	lost  int // operations whose outcome is unknown
	next  int // client
}

// call is the input of an operation.
type call struct {
	register  string
	kind      string // read, write, swap
	old, next string // values: old is what a swap expects
}

// answer is the output of an operation.
type answer struct {
	value   string // of a read
	swapped bool
	unknown bool // the operation may have happened, now or later
}

const valueKey = "value"

// Create creates the registers with the value "".
func (r *Registers) Create(ctx context.Context, maps client.Resource[*corev1.ConfigMap]) error {
	r.begin = time.Now()
	for _, name := range r.Names {
		if _, err := maps.Create(ctx, register(name, "", "")); err != nil {
			return err
		}
	}
	return nil
}

func register(name, value, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}, Data: map[string]string{valueKey: value}}
}

// Run is one client: it sends requests until ctx ends. maps sends them to one server, and
// sends none twice.
func (r *Registers) Run(ctx context.Context, maps client.Resource[*corev1.ConfigMap]) {
	r.mu.Lock()
	id := r.next
	r.next++
	r.mu.Unlock()
	for n := 0; ctx.Err() == nil; n++ {
		name := r.Names[rand.IntN(len(r.Names))]
		have := r.read(ctx, id, maps, name)
		if have == nil {
			Pause(ctx, afterFailure)
			continue
		}
		value := fmt.Sprintf("%d-%d", id, n)
		switch n % 3 {
		case 0:
			r.write(ctx, id, maps, call{register: name, kind: "write", next: value}, "")
		case 1:
			r.write(ctx, id, maps, call{register: name, kind: "swap", old: have.Data[valueKey], next: value}, have.ResourceVersion)
		}
		Pause(ctx, 40*time.Millisecond)
	}
}

// afterFailure is the pause of a client that got no answer: each operation whose outcome is
// unknown makes the check harder.
const afterFailure = time.Second

// read reads a register, by GET or by LIST. It returns nil if there was no answer: that says
// nothing of the register, so it is not recorded.
func (r *Registers) read(ctx context.Context, id int, maps client.Resource[*corev1.ConfigMap], name string) *corev1.ConfigMap {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	called := time.Now()
	var have *corev1.ConfigMap
	if rand.IntN(2) == 0 {
		list, err := maps.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
		if err != nil || len(list.Items) != 1 {
			return nil
		}
		have = list.Items[0]
	} else {
		var err error
		if have, err = maps.Get(ctx, name); err != nil {
			return nil
		}
	}
	r.record(id, call{register: name, kind: "read"}, called, answer{value: have.Data[valueKey]})
	return have
}

// write writes a register, whatever it holds or, with a version, if it has that version.
func (r *Registers) write(ctx context.Context, id int, maps client.Resource[*corev1.ConfigMap], c call, version string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	called := time.Now()
	_, err := maps.Update(ctx, register(c.register, c.next, version))
	switch {
	case err == nil:
		r.record(id, c, called, answer{swapped: true})
	case apierrors.IsConflict(err) && version != "":
		r.record(id, c, called, answer{})
	case unsent(err):
	default:
		r.record(id, c, called, answer{unknown: true})
		Pause(ctx, afterFailure)
	}
}

// unsent reports whether no connection could be made for a request.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func (r *Registers) record(id int, c call, called time.Time, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	returned := time.Since(r.begin)
	if a.unknown {
		returned = time.Duration(1<<63 - 1) // it may happen at any later time
		r.lost++
	}
	r.ops = append(r.ops, porcupine.Operation{ClientId: id, Input: c, Call: int64(called.Sub(r.begin)), Output: a, Return: int64(returned)})
}

// Check returns the number of operations, and how many of them had an unknown outcome. The
// error says whether no order of the operations explains all answers: an answer is stale, a
// write was lost or came back, or two swaps of one value succeeded.
func (r *Registers) Check(within time.Duration) (ops, lost int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch porcupine.CheckOperationsTimeout(linear, r.ops, within) {
	case porcupine.Illegal:
		err = fmt.Errorf("the history of %d operations is not linearizable", len(r.ops))
	case porcupine.Unknown:
		err = fmt.Errorf("the history of %d operations could not be checked within %v", len(r.ops), within)
	}
	return len(r.ops), r.lost, err
}

// linear is the model of one register: its state is its value. No value is written twice.
var linear = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(call).register
			byName[name] = append(byName[name], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range byName {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		c, a := input.(call), output.(answer)
		switch {
		case c.kind == "read":
			return a.value == state, state
		case c.kind == "write":
			return true, c.next
		case a.unknown: // it may have failed
			if c.old == state {
				return true, c.next
			}
			return true, state
		case a.swapped:
			return c.old == state, c.next
		}
		return c.old != state, state
	},
}
