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

// handler answers queries. It is safe for concurrent use.
type handler struct {
	zone    *zone
	forward *forwarder
	metrics *metrics
	synced  func() bool
	log     *slog.Logger
	ctx     context.Context // of Run: forwarded queries end with it
}

// maxAliases limits the length of a chain of aliases.
const maxAliases = 8

// ServeDNS implements dns.Handler.
func (h *handler) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	began := time.Now()
	_, overTCP := w.RemoteAddr().(*net.TCPAddr)
	defer func() {
		if p := recover(); p != nil { // one packet must not end the name server
			h.metrics.panics.Inc()
			h.log.Error("panic while answering a query", "panic", p, "stack", string(debug.Stack()))
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

// knownTypes are the types with metrics of their own; clients must not be able to
// create metrics without bound.
var knownTypes = map[uint16]bool{
	dns.TypeA: true, dns.TypeAAAA: true, dns.TypeSRV: true, dns.TypePTR: true, dns.TypeCNAME: true, dns.TypeMX: true,
	dns.TypeNS: true, dns.TypeSOA: true, dns.TypeTXT: true, dns.TypeHTTPS: true, dns.TypeANY: true,
}

func failure(r *dns.Msg, code int) *dns.Msg {
	m := &dns.Msg{}
	m.SetRcode(r, code)
	return m
}

// answer returns the response to a query. It never returns nil.
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
		return failure(r, dns.RcodeServerFailure) // an unknown name may exist
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

// anything answers a query for all types with one small record, so that the server
// cannot be used for amplification (RFC 8482).
func anything(r *dns.Msg) *dns.Msg {
	m := &dns.Msg{}
	m.SetReply(r)
	m.Answer = []dns.RR{&dns.HINFO{
		Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: 3600}, Cpu: "RFC8482",
	}}
	return m
}

// own answers a query for a name in the zone and resolves ExternalName Services.
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
			// If the alias cannot be resolved, the client gets the CNAME only.
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

// others answers queries for names outside of the cluster.
func (h *handler) others(ctx context.Context, r *dns.Msg, overTCP bool) *dns.Msg {
	if !r.RecursionDesired {
		return failure(r, dns.RcodeRefused)
	}
	theirs, err := h.forward.ask(ctx, r, overTCP)
	if err != nil {
		h.log.Debug("query not answered", "name", r.Question[0].Name, "error", err)
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
	restoreCase(m)
	return m
}

// restoreCase gives records the spelling of the name in the question.
func restoreCase(m *dns.Msg) {
	name := m.Question[0].Name
	for _, rr := range m.Answer {
		if strings.EqualFold(rr.Header().Name, name) {
			rr.Header().Name = name
		}
	}
}

// write sends the response. If it is larger than the client can receive, write
// truncates it and sets TC, so that the client retries by TCP.
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
		h.log.Debug("send response failed", "client", w.RemoteAddr(), "error", err)
	}
}
