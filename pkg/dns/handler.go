package dns

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// handler answers one question at a time; many may run side by side.
type handler struct {
	zone    *zone
	forward *forwarder
	metrics *metrics
	synced  func() bool
	log     *slog.Logger
	ctx     context.Context // of Run: what waits ends with it
}

// Chains of names are followed this far.
const maxAliases = 8

// ServeDNS implements dns.Handler.
func (h *handler) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	began := time.Now()
	_, overTCP := w.RemoteAddr().(*net.TCPAddr)
	defer func() {
		if p := recover(); p != nil { // one packet must not end the cluster's names
			h.metrics.panics.Inc()
			h.log.Error("a question broke the server's logic", "panic", p, "stack", string(debug.Stack()))
			h.write(w, r, failure(r, dns.RcodeServerFailure), overTCP)
		}
	}()
	answer := h.answer(h.ctx, r, overTCP)
	proto, kind := "udp", "other"
	if overTCP {
		proto = "tcp"
	}
	if len(r.Question) == 1 && knownTypes[r.Question[0].Qtype] {
		kind = dns.TypeToString[r.Question[0].Qtype]
	}
	h.metrics.requests.WithLabelValues(proto, kind).Inc()
	h.metrics.responses.WithLabelValues(dns.RcodeToString[answer.Rcode]).Inc()
	h.write(w, r, answer, overTCP)
	h.metrics.duration.Observe(time.Since(began).Seconds())
}

// knownTypes have series of their own; strangers shall not make as many as they like.
var knownTypes = map[uint16]bool{
	dns.TypeA: true, dns.TypeAAAA: true, dns.TypeSRV: true, dns.TypePTR: true, dns.TypeCNAME: true, dns.TypeMX: true,
	dns.TypeNS: true, dns.TypeSOA: true, dns.TypeTXT: true, dns.TypeHTTPS: true, dns.TypeANY: true,
}

func failure(r *dns.Msg, code int) *dns.Msg {
	m := &dns.Msg{}
	m.SetRcode(r, code)
	return m
}

// answer finds what to say. It never returns nil.
func (h *handler) answer(ctx context.Context, r *dns.Msg, overTCP bool) *dns.Msg {
	if len(r.Question) != 1 {
		return failure(r, dns.RcodeFormatError)
	}
	q := r.Question[0]
	switch opt := r.IsEdns0(); {
	case opt != nil && opt.Version() != 0:
		return failure(r, dns.RcodeBadVers)
	case q.Qclass != dns.ClassINET:
		return failure(r, dns.RcodeRefused)
	case q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR:
		return failure(r, dns.RcodeRefused)
	case q.Qtype == dns.TypeANY:
		return anything(r)
	case strings.EqualFold(q.Name, h.forward.probe):
		h.metrics.probes.Add(1)
		return failure(r, dns.RcodeNameError)
	case !h.synced():
		return failure(r, dns.RcodeServerFailure) // a name we do not know yet may exist
	case h.zone.has(q.Name):
		return h.own(ctx, r, overTCP)
	}
	if ip, ok := addressOf(q.Name); ok {
		if f, ours := h.zone.reverse(q, ip); ours {
			return h.authoritative(r, f)
		}
	}
	return h.others(ctx, r, overTCP)
}

// anything answers a question for all types: with next to nothing, so that the
// answer is no weapon (RFC 8482).
func anything(r *dns.Msg) *dns.Msg {
	m := &dns.Msg{}
	m.SetReply(r)
	m.Answer = []dns.RR{&dns.HINFO{
		Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: 3600}, Cpu: "RFC8482",
	}}
	return m
}

// own answers for a name in the zone, following Services that are another's name.
func (h *handler) own(ctx context.Context, r *dns.Msg, overTCP bool) *dns.Msg {
	f := h.zone.find(r.Question[0])
	m := h.authoritative(r, f)
	seen := map[string]bool{strings.ToLower(r.Question[0].Name): true}
	for i := 0; f.alias != ""; i++ {
		if i == maxAliases || seen[f.alias] {
			return failure(r, dns.RcodeServerFailure)
		}
		seen[f.alias] = true
		next := r.Copy()
		next.Question[0].Name = f.alias
		if !h.zone.has(f.alias) {
			// What cannot be found out leaves the client the name alone.
			if theirs, err := h.forward.ask(ctx, next, overTCP); err == nil {
				m.Answer = append(m.Answer, theirs.Answer...)
				m.Truncated = m.Truncated || theirs.Truncated
			}
			return m
		}
		f = h.zone.find(next.Question[0])
		if !f.exists {
			m.Rcode = dns.RcodeNameError
		}
		m.Answer = append(m.Answer, f.answer...)
	}
	return m
}

func (h *handler) authoritative(r *dns.Msg, f found) *dns.Msg {
	m := &dns.Msg{}
	m.SetReply(r)
	m.Authoritative, m.RecursionAvailable = true, true
	m.Answer, m.Extra = f.answer, f.extra
	if !f.exists {
		m.Rcode = dns.RcodeNameError
	}
	if len(m.Answer) == 0 {
		m.Ns = []dns.RR{h.zone.soa()}
	}
	return m
}

// others answers for names that are not the cluster's.
func (h *handler) others(ctx context.Context, r *dns.Msg, overTCP bool) *dns.Msg {
	if !r.RecursionDesired {
		return failure(r, dns.RcodeRefused)
	}
	theirs, err := h.forward.ask(ctx, r, overTCP)
	if err != nil {
		h.log.Debug("a question was not answered", "name", r.Question[0].Name, "error", err)
		if errors.Is(err, errNoPeer) {
			return failure(r, dns.RcodeRefused)
		}
		return failure(r, dns.RcodeServerFailure)
	}
	m := &dns.Msg{}
	m.SetReply(r)
	m.Rcode, m.RecursionAvailable, m.Truncated, m.AuthenticatedData = theirs.Rcode, true, theirs.Truncated, theirs.AuthenticatedData
	m.Answer, m.Ns = theirs.Answer, theirs.Ns
	for _, rr := range theirs.Extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			m.Extra = append(m.Extra, rr)
		}
	}
	asAsked(m)
	return m
}

// asAsked gives records the question's own capitals.
func asAsked(m *dns.Msg) {
	name := m.Question[0].Name
	for _, rr := range m.Answer {
		if strings.EqualFold(rr.Header().Name, name) {
			rr.Header().Name = name
		}
	}
}

// write sends the answer in as many bytes as the client can take. What is too
// long is cut, and the client told to come by TCP.
func (h *handler) write(w dns.ResponseWriter, r, m *dns.Msg, overTCP bool) {
	size := dns.MaxMsgSize
	if opt := r.IsEdns0(); opt != nil {
		m.Extra = append(m.Extra, &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}})
		ours := m.Extra[len(m.Extra)-1].(*dns.OPT)
		ours.SetUDPSize(udpSize)
		ours.SetDo(opt.Do())
		size = min(max(int(opt.UDPSize()), dns.MinMsgSize), udpSize)
	} else if !overTCP {
		size = dns.MinMsgSize
	}
	if overTCP {
		size = dns.MaxMsgSize
	}
	m.Compress = true
	m.Truncate(size)
	if err := w.WriteMsg(m); err != nil {
		h.log.Debug("an answer was not sent", "client", w.RemoteAddr(), "error", err)
	}
}
