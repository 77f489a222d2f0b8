package membership

import (
	"cmp"
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy"
)

// Submission is the verified tokens of one message.
type Submission struct {
	Caller ect.Identity // authenticated by the transport
	// Gateway reports whether an identity is a gateway that the operator listed. It may
	// bring the tokens of others. Whom its own tokens name belongs, if the workflow is
	// not on record, or if a parent of the token shows the part of its user there.
	Gateway func(ect.Identity) bool
	// Decides: the caller has the role of an approver in the operator's directory.
	// Its decision about a token on record needs no membership (ruling R23).
	Decides bool
	Tokens  []ect.Verified // sources and ancestors, in any order
}

// Admission is the tokens of a message that may be recorded once policy permits
// the message.
type Admission struct {
	Filed []Filed // in the order in which they are recorded: parents first
	// Known is what was on record under the ids of the tokens and of their parents.
	Known map[ect.ID][]ect.Record
	// Member: the caller belonged before to the workflow of a token that it issued.
	Member bool
	// ByRole: the caller does not belong to the workflow, and only its role lets it
	// in. The message must be a decision, and makes no member.
	ByRole bool
}

// Filed is a token, and whom it makes a member of its workflow.
type Filed struct {
	Token   ect.Verified
	Members []ect.Identity
	Begins  bool // it is admitted only because its workflow is not on record (ect.Filing)
}

// Outsider refuses a message whose issuer has no part in the workflow that it names.
func Outsider() error {
	return &policy.Forbidden{Reason: "the caller has no part in this workflow: name a parent that was addressed to it, or begin another workflow"}
}

// Admit judges the tokens of a message. It records nothing. Errors:
// *policy.Forbidden for an outsider, *ect.ForeignRootError for a root in another
// issuer's workflow, *ect.ConflictError for an id that another issuer used in this
// workflow; any other error is trouble of the store.
func (r *Register) Admit(ctx context.Context, s Submission) (Admission, error) {
	a := admission{Register: r, sub: s}
	if len(s.Tokens) == 0 {
		return a.out, nil
	}
	for i, t := range s.Tokens {
		if slices.ContainsFunc(s.Tokens[:i], func(other ect.Verified) bool { return other.ID() == t.ID() && other.Compact() != t.Compact() }) {
			return a.out, &ect.ConflictError{ID: t.ID()} // an id is one token's
		}
	}
	tokens := inOrder(s.Tokens)
	if err := a.lookUp(ctx, tokens); err != nil {
		return a.out, err
	}
	a.out.Filed = make([]Filed, 0, len(tokens))
	for _, t := range tokens {
		filed, err := a.judge(ctx, t)
		if err != nil {
			return Admission{}, err
		}
		a.out.Filed = append(a.out.Filed, filed)
	}
	return a.out, nil
}

// lookUp finds what is on record under the ids of tokens and of their parents, each in
// the workflow of the token that has or names it.
func (a *admission) lookUp(ctx context.Context, tokens []ect.Verified) error {
	refs := make([]ect.Ref, 0, 2*len(tokens))
	for _, t := range tokens {
		refs = append(refs, ect.Ref{ID: t.ID(), Workflow: t.Workflow(), Issuer: t.Issuer()})
	}
	for _, t := range tokens {
		for _, id := range t.Parents() {
			same := func(ref ect.Ref) bool { return ref.ID == id && ref.Workflow == t.Workflow() }
			if !slices.ContainsFunc(refs, same) && len(refs) < maxIDs {
				refs = append(refs, ect.Ref{ID: id, Workflow: t.Workflow()})
			}
		}
	}
	found, err := a.deps.Store.Get(ctx, refs...)
	if err != nil {
		return err
	}
	for i, ref := range refs {
		for _, rec := range found[i] {
			known := a.out.Known[ref.ID]
			if slices.ContainsFunc(known, func(other ect.Record) bool { return other.Issuer == rec.Issuer }) {
				continue // under the same id in another workflow
			}
			if a.out.Known == nil {
				a.out.Known = map[ect.ID][]ect.Record{}
			}
			a.out.Known[ref.ID] = append(known, rec)
		}
	}
	return nil
}

// maxIDs bounds the ids that are looked up for one message. Parents beyond it do
// not admit anything.
const maxIDs = 256

// inOrder orders tokens so that each comes after those that it names as parents,
// and all roots come first: the store takes a root only as the first record of its
// workflow. A token appears once.
func inOrder(tokens []ect.Verified) []ect.Verified {
	if len(tokens) == 1 {
		return tokens
	}
	out := make([]ect.Verified, 0, len(tokens))
	placed := map[ect.ID]bool{}
	var place func(t ect.Verified)
	place = func(t ect.Verified) {
		if placed[t.ID()] {
			return
		}
		placed[t.ID()] = true
		for _, id := range t.Parents() {
			for _, other := range tokens {
				if other.ID() == id {
					place(other)
				}
			}
		}
		out = append(out, t)
	}
	for _, t := range tokens {
		if len(t.Parents()) == 0 {
			place(t)
		}
	}
	for _, t := range tokens {
		place(t)
	}
	return out
}

// admission is one judgement under way.
type admission struct {
	*Register
	sub   Submission
	begun map[string]ect.Identity // who issued the root of each workflow of which this message has one
	apart map[ect.ID]bool         // admitted tokens that show no part of their issuers: on record as they are, or by role
	out   Admission
}

// judge decides about one token, after its submitted parents.
func (a *admission) judge(ctx context.Context, t ect.Verified) (Filed, error) {
	wid := t.Workflow()
	if wid == "" {
		return Filed{Token: t}, nil
	}
	for _, rec := range a.out.Known[t.ID()] {
		switch {
		case rec.Workflow != wid && rec.Issuer == t.Issuer() && rec.Compact != t.Compact():
			return Filed{}, &ect.ConflictError{ID: t.ID()}
		case rec.Workflow != wid:
		case rec.Issuer != t.Issuer():
			return Filed{}, &ect.ConflictError{ID: t.ID()}
		case rec.Compact == t.Compact() && t.Issuer() != a.sub.Caller:
			return a.showsNothing(Filed{Token: t, Members: rec.Members}), nil // it is on record as it is
		}
	}
	standing, err := a.deps.Store.Standing(ctx, wid, t.Issuer())
	if err != nil {
		return Filed{}, err
	}
	if t.Issuer() == a.sub.Caller && standing.Member {
		a.out.Member = true
	}
	root, begun := a.begun[wid]
	gateway := a.sub.Gateway(t.Issuer())
	if foreign := len(t.Parents()) == 0 && !standing.Root; gateway && !foreign && (standing.Known || begun) {
		switch ok, err := a.onBehalf(ctx, t, standing.Member); {
		case err != nil:
			return Filed{}, err
		case !ok && a.carriesDecision(t):
			a.out.ByRole = true
			return a.showsNothing(Filed{Token: t}), nil
		case !ok:
			return Filed{}, Outsider()
		}
	}
	belongs := standing.Member || begun && root == t.Issuer() || a.named(t, t.Issuer()) || gateway && t.Issuer() == a.sub.Caller
	switch {
	case len(t.Parents()) == 0:
		return a.root(t, standing)
	case belongs && gateway && (standing.Known || begun):
		return a.relayed(t), nil
	case belongs:
		return a.file(t), nil
	case !standing.Known: // the workflow begins with this message, without a root
		return a.beginner(t, begun), nil
	case a.decision(t):
		a.out.ByRole = true
		return a.showsNothing(Filed{Token: t}), nil
	default:
		return Filed{}, Outsider()
	}
}

// beginner admits a token of a workflow that begins without a root. Its issuer belongs
// if it is the caller, as the evidence of ours about its message would have it anyway.
func (a *admission) beginner(t ect.Verified, begun bool) Filed {
	f := Filed{Token: t, Begins: !begun}
	if t.Issuer() == a.sub.Caller {
		f.Members = []ect.Identity{t.Issuer()}
	}
	return f
}

// showsNothing notes that a token is admitted whatever the part of its issuer is.
func (a *admission) showsNothing(f Filed) Filed {
	if a.apart == nil {
		a.apart = map[ect.ID]bool{}
	}
	a.apart[f.Token.ID()] = true
	return f
}

// root admits the first root of a workflow, and further ones of its issuer.
func (a *admission) root(t ect.Verified, standing ect.Standing) (Filed, error) {
	issuer, begun := a.begun[t.Workflow()]
	if standing.Known && !standing.Root || begun && issuer != t.Issuer() {
		return Filed{}, &ect.ForeignRootError{ID: t.ID()}
	}
	if len(a.sub.Tokens) > 1 { // others may belong to what this one begins
		if a.begun == nil {
			a.begun = map[string]ect.Identity{}
		}
		a.begun[t.Workflow()] = t.Issuer()
	}
	return a.file(t), nil
}

// file admits a token of an issuer that belongs: whom it names belongs then, too.
func (a *admission) file(t ect.Verified) Filed {
	var caller ect.Identity
	if t.Issuer() == a.deps.Self || a.sub.Gateway(t.Issuer()) {
		text, _ := t.Extension(ect.ExtCaller)
		caller = ect.Identity(text)
	}
	return Filed{Token: t, Members: a.Own(t.Audience(), caller)}
}

// relayed admits a listed gateway's token in a workflow that is on record. Of those in
// its audience, the gateway itself belongs, and whom a parent names: that a gateway names
// an identity there makes no member. Its user is judged by onBehalf.
func (a *admission) relayed(t ect.Verified) Filed {
	f := a.file(t)
	user, _ := t.Extension(ect.ExtCaller)
	f.Members = slices.DeleteFunc(f.Members, func(who ect.Identity) bool {
		return who != t.Issuer() && who != ect.Identity(user) && !a.named(t, who)
	})
	return f
}

// named reports whether a parent names an identity and was signed by a gateway or by
// an identity that belongs: the issuer of a token on record in the workflow made
// members, or did not, when it was recorded.
func (a *admission) named(t ect.Verified, who ect.Identity) bool {
	filed, known := a.parents(t)
	return slices.ContainsFunc(filed, func(f Filed) bool { return slices.Contains(f.Members, who) }) ||
		slices.ContainsFunc(known, func(rec ect.Record) bool { return slices.Contains(rec.Members, who) })
}

// parents are the parents of a token within its workflow: those that are admitted with
// it, and those on record. An id means nothing in another workflow.
func (a *admission) parents(t ect.Verified) (filed []Filed, known []ect.Record) {
	for _, id := range t.Parents() {
		for _, f := range a.out.Filed {
			if f.Token.ID() == id && f.Token.Workflow() == t.Workflow() {
				filed = append(filed, f)
			}
		}
		for _, rec := range a.out.Known[id] {
			if rec.Workflow == t.Workflow() {
				known = append(known, rec)
			}
		}
	}
	return filed, known
}

// onBehalf reports whether a listed gateway may sign a token in a workflow that is on
// record for the user that it names. Its word alone says nothing of the user's part
// there: the gateway may know nothing of the workflow, and have been sent a token whose
// parents it could not see, or it may lie. So the user must have issued a token that is
// admitted with it; or the gateway belongs to the workflow or a parent names it, a parent
// is found there, and the user belongs or a parent names it. For ourselves the parent is
// a token of ours that was addressed to the gateway. A gateway that names no user speaks
// for the issuer of a token that is admitted with it, or for itself if a parent names it.
func (a *admission) onBehalf(ctx context.Context, t ect.Verified, belongs bool) (bool, error) {
	text, _ := t.Extension(ect.ExtCaller)
	user := ect.Identity(text)
	filed, known := a.parents(t)
	if slices.ContainsFunc(filed, func(f Filed) bool {
		return !a.apart[f.Token.ID()] && (user == "" || f.Token.Issuer() == user)
	}) {
		return true, nil
	}
	if user == a.deps.Self { // the message came from here
		return slices.ContainsFunc(known, func(rec ect.Record) bool {
			return rec.Issuer == user && slices.Contains(rec.Members, t.Issuer())
		}), nil
	}
	if !belongs && !a.named(t, t.Issuer()) {
		return false, nil
	}
	if a.named(t, cmp.Or(user, t.Issuer())) {
		return true, nil
	}
	if user == "" || len(filed)+len(known) == 0 && len(t.Parents()) > 0 {
		return false, nil
	}
	standing, err := a.deps.Store.Standing(ctx, t.Workflow(), user)
	return standing.Member, err
}

// decision reports whether the token is an approver's decision about a token that
// is on record.
func (a *admission) decision(t ect.Verified) bool {
	return a.sub.Decides && t.Issuer() == a.sub.Caller && decides(t) && slices.ContainsFunc(t.Parents(), func(id ect.ID) bool {
		return slices.ContainsFunc(a.out.Known[id], func(rec ect.Record) bool { return rec.Workflow == t.Workflow() })
	})
}

// carriesDecision reports whether a gateway's token was made of a decision that is on
// record, as its issuer sent it.
func (a *admission) carriesDecision(t ect.Verified) bool {
	user, present := t.Extension(ect.ExtCaller)
	filed, _ := a.parents(t)
	return t.Issuer() == a.sub.Caller && slices.ContainsFunc(filed, func(f Filed) bool {
		return decides(f.Token) && (!present || f.Token.Issuer() == ect.Identity(user))
	})
}

func decides(t ect.Verified) bool {
	return t.Act() == ect.ActApprovalGranted || t.Act() == ect.ActApprovalDenied
}
