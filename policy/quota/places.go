package quota

import "container/list"

// Places is a resource of which holders take one unit at a time and use it now and then,
// such as open connections. A place in use is never taken away. When all places are
// taken, or all that one holder may have, one that is not in use gives way to the next:
//
//   - at the holder's own limit, that holder's place which was used longest ago;
//   - else that of the holder with the most unused places, the one used longest ago, but
//     not for a holder that has more places than that one: it gives one of its own;
//   - so it is, too, in the last quarter of the places, for holders above an eighth of
//     their limit; there those with as many places as another one give one of their own.
//
// So a holder with few places keeps them, whatever others take. Every operation takes the
// same time however many places there are. It is safe for concurrent use.
type Places struct {
	bounds

	used    int
	holders map[string]*placeHolder
	bySize  map[int]*list.List // of *placeHolder, by how many unused places they have
	most    int                // that any holder has unused
}

// placeHolder is what one holder has.
type placeHolder struct {
	name    string
	current int
	unused  *list.List    // of *Place, the one used longest ago first
	size    int           // where it stands in bySize; 0: nowhere
	at      *list.Element // there
}

// NewPlaces makes places of which none is taken.
func NewPlaces(config Config) (*Places, error) {
	p := &Places{holders: map[string]*placeHolder{}, bySize: map[int]*list.List{}}
	return p, p.Reconfigure(config)
}

// Usage says how many places are taken.
func (p *Places) Usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Usage{Used: int64(p.used), Total: p.config.Total, Holders: len(p.holders)}
}

// Take takes a place, which is in use if inUse says so. giveWay is called once when
// another takes it, in the goroutine of that one. An [*ExceededError] says which bound is
// in the way; then no other place has given way.
func (p *Places) Take(holder string, inUse bool, giveWay func()) (*Place, error) {
	taken := &Place{places: p, giveWay: giveWay}
	victim, err := p.take(holder, inUse, taken)
	if err != nil {
		p.refuse()
		return nil, err
	}
	if victim != nil {
		victim.giveWay()
	}
	return taken, nil
}

// take books a place and returns the place to evict for it; nil: none.
func (p *Places) take(holder string, inUse bool, taken *Place) (victim *Place, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.holders[holder]
	if h == nil {
		h = &placeHolder{name: holder, unused: list.New()}
	}
	from, err := p.giving(h)
	if err != nil {
		return nil, err
	}
	if from != nil {
		victim, _ = from.unused.Front().Value.(*Place)
		p.drop(victim)
	}
	p.holders[holder] = h // it may have left with the victim
	p.used++
	h.current++
	taken.holder = h
	if inUse {
		taken.uses = 1
	} else {
		p.rest(taken)
	}
	return victim, nil
}

// giving returns the holder that loses a place to one more of h; nil: a place is free.
func (p *Places) giving(h *placeHolder) (*placeHolder, error) {
	total := int(p.config.Total)
	each := int(min(p.config.PerHolder, p.config.Total))
	own := h.current >= each
	hasSpace := p.used < total
	switch {
	case own && h.unused.Len() == 0:
		return nil, &ExceededError{Resource: p.config.Resource, Own: true}
	case own, h.unused.Len() > 0 && h.unused.Len() == p.most && !hasSpace:
		return h, nil
	case hasSpace && (p.used < total-total/4 || h.current < max(1, each/8)):
		return nil, nil //nolint:nilnil // a place is free
	}
	if full := p.bySize[p.most]; p.most > 0 && full != nil {
		from, _ := full.Front().Value.(*placeHolder)
		if from.current > h.current || from.current == h.current && !hasSpace {
			return from, nil
		}
	}
	if h.unused.Len() > 0 {
		return h, nil
	}
	return nil, &ExceededError{Resource: p.config.Resource}
}

// Count is how many places a holder has.
func (p *Places) Count(holder string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.holders[holder]; h != nil {
		return h.current
	}
	return 0
}

// rest puts a place behind the unused ones of its holder.
func (p *Places) rest(one *Place) {
	one.at = one.holder.unused.PushBack(one)
	p.sort(one.holder)
}

// wake takes a place out of the unused ones.
func (p *Places) wake(one *Place) {
	if one.at != nil {
		one.holder.unused.Remove(one.at)
		one.at = nil
		p.sort(one.holder)
	}
}

// drop gives a place back.
func (p *Places) drop(one *Place) {
	p.wake(one)
	one.gone = true
	p.used--
	if one.holder.current--; one.holder.current == 0 {
		delete(p.holders, one.holder.name)
	}
}

// sort moves a holder to where its number of unused places puts it.
func (p *Places) sort(h *placeHolder) {
	if h.at != nil {
		p.bySize[h.size].Remove(h.at)
		h.at = nil
	}
	if h.size = h.unused.Len(); h.size > 0 {
		if p.bySize[h.size] == nil {
			p.bySize[h.size] = list.New()
		}
		h.at = p.bySize[h.size].PushBack(h)
	}
	p.most = max(p.most, h.size)
	for p.most > 0 && (p.bySize[p.most] == nil || p.bySize[p.most].Len() == 0) {
		p.most-- // its list stays for the next
	}
}

// Place is one place. It is safe for concurrent use.
type Place struct {
	places  *Places
	holder  *placeHolder
	giveWay func()

	at   *list.Element // in holder.unused; nil: it is in use
	uses int
	gone bool // released, or given away
}

// Use counts one more use of the place, until [Place.Rest]; false: it is not the holder's
// any more. A nil Place counts nothing.
func (one *Place) Use() bool {
	if one == nil {
		return true
	}
	p := one.places
	p.mu.Lock()
	defer p.mu.Unlock()
	one.uses++
	if !one.gone {
		p.wake(one)
	}
	return !one.gone
}

// Rest ends one use. After the last one the place is not in use any more.
func (one *Place) Rest() {
	if one == nil {
		return
	}
	p := one.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.uses--; one.uses == 0 && !one.gone {
		p.rest(one)
	}
}

// Release gives the place back. A second Release does nothing.
func (one *Place) Release() {
	p := one.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if !one.gone {
		p.drop(one)
	}
}
