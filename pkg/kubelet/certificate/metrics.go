package certificate

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// register registers upstream's metrics of the certificate which, "client" or
// "server"; left returns its remaining lifetime in seconds. It returns the
// counter of failed renewals.
func register(r prometheus.Registerer, which string, left func() float64) prometheus.Counter {
	f := prom.For(r)
	f.GaugeFunc("kubelet_certificate_manager_"+which+"_ttl_seconds", "Gauge of the TTL (time-to-live) of the kubelet's certificate, in seconds; 0 if there is none.", left)
	return f.Counter("kubelet_certificate_manager_"+which+"_expiration_renew_errors", "Counter of certificate renewal errors.")
}
