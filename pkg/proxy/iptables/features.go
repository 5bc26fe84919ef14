package iptables

import "podium/pkg/netrules"

// Features are the capabilities of the kernel and of iptables. Without Statistic,
// connections are spread by the client's address. Without Recent, ClientIP affinity
// uses the client's address and ignores the timeout. Without ReversePath, pods can
// send from any address.
type Features struct {
	Comment     bool
	Statistic   bool
	Recent      bool
	RandomFully bool
	SCTP        bool
	ReversePath bool // the rpfilter match in the raw table
}

// AllFeatures returns the capabilities of an ordinary kernel.
func AllFeatures() Features {
	return Features{Comment: true, Statistic: true, Recent: true, RandomFully: true, SCTP: true, ReversePath: true}
}

func (f Features) comment(text string) string {
	if !f.Comment {
		return ""
	}
	return netrules.Comment(text)
}

func (f Features) commentWords(text string) []string {
	if !f.Comment {
		return nil
	}
	return []string{"-m", "comment", "--comment", text}
}

// Missing describes, for the operator, each missing capability and its effect.
func (f Features) Missing() []string {
	var out []string
	if !f.Comment {
		out = append(out, "no comment match: rules carry no names")
	}
	if !f.Statistic {
		out = append(out, "no statistic match: connections are spread over endpoints by the client's address")
	}
	if !f.Recent {
		out = append(out, "no recent match: sessionAffinity ClientIP goes by the client's address, and its timeout is not kept")
	}
	if !f.SCTP {
		out = append(out, "no sctp match: SCTP ports of Services are not served")
	}
	if !f.ReversePath {
		out = append(out, "no rpfilter match in the raw table: the source addresses of pods' packets are not checked")
	}
	return out
}
