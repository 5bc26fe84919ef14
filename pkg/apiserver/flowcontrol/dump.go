package flowcontrol

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// Dump writes what levels, queues or requests do at present, as a table with upstream's
// columns. page is the last segment of upstream's path. It returns false, without
// writing, if there is no such page. details adds what the requests ask.
func (f *Limiter) Dump(w io.Writer, page string, details bool) bool {
	rows := map[string]func(*level) [][]string{"dump_priority_levels": levelRow, "dump_queues": queueRows, "dump_requests": requestRows}[page]
	if rows == nil {
		return false
	}
	columns := map[string]string{
		"dump_priority_levels": "PriorityLevelName ActiveQueues IsIdle IsQuiescing WaitingRequests ExecutingRequests DispatchedRequests RejectedRequests TimedoutRequests CancelledRequests",
		"dump_queues":          "PriorityLevelName Index PendingRequests ExecutingRequests SeatsInUse NextDispatchR InitialSeatsSum MaxSeatsSum TotalWorkSum",
		"dump_requests":        "PriorityLevelName FlowSchemaName QueueIndex RequestIndexInQueue FlowDistingsher ArriveTime InitialSeats FinalSeats AdditionalLatency StartTime" + " UserName Verb APIPath Namespace Name APIVersion Resource SubResource",
	}[page]
	table := [][]string{strings.Fields(columns)}
	for _, l := range f.plan.Load().levels {
		l.mu.Lock()
		table = append(table, rows(l)...)
		l.mu.Unlock()
	}
	out := tabwriter.NewWriter(w, 8, 0, 1, ' ', 0)
	for _, row := range table {
		if page == "dump_requests" && !details {
			row = row[:10]
		}
		fmt.Fprintln(out, strings.Join(row, ",\t"))
	}
	out.Flush()
	return true
}

// The caller of levelRow, queueRows and requestRows holds l.mu.

func levelRow(l *level) [][]string {
	active := 0
	for _, q := range l.queues {
		if len(q.waiting) > 0 {
			active++
		}
	}
	return [][]string{row(l.name, active, l.running+l.waiting == 0, l.cfg.quiescing, l.waiting, l.running, l.dispatched,
		l.rejected[queueFull]+l.rejected[concurrencyLimit], l.rejected[timeOut], l.rejected[cancelled])}
}

// queueRows leaves out queues without requests.
func queueRows(l *level) (out [][]string) {
	for _, i := range slices.Sorted(maps.Keys(l.queues)) {
		q := l.queues[i]
		work := fmt.Sprintf("%.8fss", guess*float64(q.waitingSeats))
		out = append(out, row(l.name, i, len(q.waiting), q.executing, q.inUseSeats, fmt.Sprintf("%.8fss", q.due), q.waitingSeats, q.waitingSeats, work))
	}
	return out
}

func requestRows(l *level) (out [][]string) {
	list := func(q *queue, index int) {
		for i, p := range q.waiting {
			out = append(out, requestRow(l, p, index, i))
		}
		for p := q.running; p != nil; p = p.next {
			out = append(out, requestRow(l, p, index, -1))
		}
	}
	for _, i := range slices.Sorted(maps.Keys(l.queues)) {
		list(l.queues[i], i)
	}
	list(&l.queueless, -1)
	return out
}

func requestRow(l *level, p *Place, queue, at int) []string {
	r, moment := p.req, func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	return row(l.name, p.schema.name, queue, at, p.schema.flow(r), moment(p.arrived), p.width, 0, time.Duration(0), moment(p.started),
		r.User.Name, r.Verb, r.Path, r.Namespace, r.Name, apischema.GroupVersion{Group: r.Group, Version: r.Version}, r.Resource, r.Subresource)
}

func row(values ...any) (out []string) {
	for _, v := range values {
		out = append(out, fmt.Sprint(v))
	}
	return out
}
