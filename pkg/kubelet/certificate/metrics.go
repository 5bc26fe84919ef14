package certificate

import "github.com/prometheus/client_golang/prometheus"

// register shows upstream's series of one of the two certificates; left is how
// many seconds it is good for. It returns the counter of failed renewals.
func register(r prometheus.Registerer, which string, left func() float64) prometheus.Counter {
	errors := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_certificate_manager_" + which + "_expiration_renew_errors",
		Help: "Counter of certificate renewal errors.",
	})
	if r != nil {
		r.MustRegister(errors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kubelet_certificate_manager_" + which + "_ttl_seconds",
			Help: "Gauge of the TTL (time-to-live) of the kubelet's certificate, in seconds; 0 if there is none.",
		}, left))
	}
	return errors
}
