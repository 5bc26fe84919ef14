package describe

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

func (p *page) certificateRequest(r *certificatesv1.CertificateSigningRequest) {
	p.field(0, "Name", r.Name)
	p.line(0, "Labels:\t%s", labels.FormatLabels(r.Labels))
	p.line(0, "Annotations:\t%s", labels.FormatLabels(r.Annotations))
	p.line(0, "CreationTimestamp:\t%s", rfc1123(r.CreationTimestamp))
	p.line(0, "Requesting User:\t%s", r.Spec.Username)
	p.field(0, "Signer", r.Spec.SignerName)
	if s := r.Spec.ExpirationSeconds; s != nil {
		p.line(0, "Requested Duration:\t%s", duration.HumanDuration(time.Duration(*s)*time.Second))
	}
	p.line(0, "Status:\t%s", requestStatus(&r.Status))
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		p.line(0, "Subject:\t<error: the request is not PEM>")
		return
	}
	cr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		p.line(0, "Subject:\t<error: %s>", err)
		return
	}
	p.subject(cr)
}

// requestStatus returns the status as kubectl get shows it.
func requestStatus(s *certificatesv1.CertificateSigningRequestStatus) string {
	has := func(t certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(s.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == t })
	}
	out := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		out = "Denied"
	case has(certificatesv1.CertificateApproved):
		out = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		out += ",Failed"
	}
	if len(s.Certificate) > 0 {
		out += ",Issued"
	}
	return out
}

func (p *page) subject(cr *x509.CertificateRequest) {
	several := func(name string, values []string) {
		if len(values) > 0 {
			p.line(0, "\t%s:\t%s", name, strings.Join(values, "\n\t\t"))
		}
	}
	s := cr.Subject
	p.line(0, "Subject:")
	p.line(0, "\tCommon Name:\t%s", s.CommonName)
	p.line(0, "\tSerial Number:\t%s", s.SerialNumber)
	several("Organization", s.Organization)
	several("Organizational Unit", s.OrganizationalUnit)
	several("Country", s.Country)
	several("Locality", s.Locality)
	several("Province", s.Province)
	several("StreetAddress", s.StreetAddress)
	several("PostalCode", s.PostalCode)
	if len(cr.DNSNames)+len(cr.EmailAddresses)+len(cr.IPAddresses)+len(cr.URIs) == 0 {
		return
	}
	p.line(0, "Subject Alternative Names:")
	several("DNS Names", cr.DNSNames)
	several("Email Addresses", cr.EmailAddresses)
	several("URIs", texts(cr.URIs, func(u **url.URL) string { return (*u).String() }))
	several("IP Addresses", texts(cr.IPAddresses, func(ip *net.IP) string { return ip.String() }))
}

func (p *page) daemonSet(d *appsv1.DaemonSet, pods []corev1.Pod) {
	p.head(&d.ObjectMeta)
	p.line(0, "Selector:\t%s", metav1.FormatLabelSelector(d.Spec.Selector))
	p.line(0, "Node-Selector:\t%s", labels.FormatLabels(d.Spec.Template.Spec.NodeSelector))
	p.labels(&d.ObjectMeta)
	s := d.Status
	for _, count := range []struct {
		what string
		n    int32
	}{
		{"Desired Number of Nodes Scheduled", s.DesiredNumberScheduled}, {"Current Number of Nodes Scheduled", s.CurrentNumberScheduled},
		{"Number of Nodes Scheduled with Up-to-date Pods", s.UpdatedNumberScheduled}, {"Number of Nodes Scheduled with Available Pods", s.NumberAvailable},
		{"Number of Nodes Misscheduled", s.NumberMisscheduled},
	} {
		p.line(0, "%s", fmt.Sprintf("%s: %d", count.what, count.n))
	}
	p.podsOf(d, pods)
	p.template(&d.Spec.Template)
}
