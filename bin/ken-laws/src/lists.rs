//! Knowledge of English that the features share: word classes. What the rubric weighs is in [`crate::rubric`]; this is
//! only grammar. Words are lower case, parted by blanks.

/// Regular verbs, base form; a `+` doubles the last letter (stop, stopped).
pub(crate) const REGULAR: &str = "\
    abandon absorb accelerate accept access accompany account accumulate accuse ache achieve acknowledge acquire acquit+ \
    act activate adapt add address adjourn adjust administer admire admit+ adopt adore advance advise affect afford age agree aim \
    alert align alleviate allocate allow alter amend amount amplify analyse analyze annotate announce annoy answer \
    anticipate apologize appeal appear appease applaud apply appoint appraise apprehend approach approve archive argue \
    arrange arrive ascertain ask aspire assemble assert assess assign assist assume assure astonish attach attack attain \
    attempt attend attract auction audit average avert avoid await babble back backup bake balance ban+ bandage baptize \
    bar+ bargain base bathe belong benefit bicker blame bleach blend bless blink block bloom blossom board boast boil book \
    bookmark border bore borrow bother bounce brag+ braze breach breathe bridge brighten broadcast brood browse brush \
    buffer bulge bump bundle burgle burn bury buzz cache cajole calculate calibrate call cancel cap+ care carry carve cash \
    cast cater cause cease centre certify chair challenge change chant charge chart chase chat chatter check cherish chew \
    chill chop+ circle cite claim clamp clarify classify clean clear click climb clone close clutch coach coat coax code \
    coincide collapse collect collide comb combine command commence commend comment commit+ communicate commute compare compel+ \
    compensate compete compile complain complement complete compliment comply compose compound comprehend compress \
    comprise compute conceal concede concentrate concern conclude concoct condemn condense conduct confess configure \
    confine confirm confiscate conflict confuse congratulate connect conquer consent conserve consider consist console \
    consolidate conspire constitute constrain construct consult consume contain contemplate contend contest continue \
    contract contradict contribute contrive control+ converge convert convey convict convince cook cool cooperate \
    coordinate cope copy correct correlate correspond corrode corrupt cough count counter couple cover crack cram+ crash \
    crawl create crew cringe crop+ cross crumble crush cry cue cultivate curb cure cycle damage dance dangle dare darken \
    darn date debate debug+ decay deceive decide declare decline decode decorate decrease dedicate deduce deduct deem \
    default defeat defend defer+ define defy degrade delay delegate delete delight deliver demand demolish demonstrate \
    denote deny depart depend depict deplete deploy deposit depress deprive derail derive descend describe deserve design \
    designate despise destroy detach detect deter+ deteriorate determine detest devastate develop deviate devise devote \
    devour diagnose dial dictate die differ digest dilute dim+ diminish dip+ direct disable disagree disappear disappoint \
    discard discharge disclose discourage discover discuss dismantle dismiss dispatch disperse display dispose dispute \
    disrupt dissent dissolve dissuade distinguish distort distribute disturb dive diverge divert divide divorce dock \
    document dodge dominate donate double doubt download doze draft drag+ drain dread dress drift drill drip+ droop drop+ \
    drown dry dub+ dump duplicate dwarf dwell earn ease echo edit educate elect elevate eliminate elude email embark \
    embed+ embrace embroider emerge emit+ emphasize employ empower empty enable enact enclose encode encounter encourage \
    encrypt end endanger endorse endure enforce engage engrave enhance enjoy enlarge enrich enroll ensure entail enter \
    entertain entice entitle entrust envisage envy equal equate equip+ eradicate erase erode erupt escalate escape \
    establish estimate evacuate evade evaluate evaporate evolve exaggerate examine excavate exceed excel+ exchange exclude \
    excuse execute exempt exercise exert exhale exhaust exhibit exist expand expect expedite expel+ experience experiment \
    expire explain explode exploit explore export expose express extend extinguish extract fabricate facilitate fade fail \
    faint falsify falter fascinate fasten favor favour fear feature fetch file fill filter finance finish fire fit+ fix \
    flag+ flash flatten flatter flicker flinch float flock flood flourish flow fluctuate flush focus fold follow footnote \
    force forecast forfeit forge fork form format+ formulate fortify forward foster found frame free frighten frown fry fuel \
    fulfil+ fumble fumigate function fund gain gallop garnish gather gaze generate germinate giggle glance glare glaze \
    glean glow gnaw gossip govern grab+ grade grant grasp graze greet grill grind grip+ groom grumble guarantee guard \
    guess guide gulp haggle halt hammer hamper hand handle hang happen harm harvest hasten hatch hate haul haunt head heal \
    heat help hesitate highlight hike hinder hint hire hiss hoist hop+ hope host house hover hug+ hunt hurl hurry hush \
    identify ignite ignore illuminate illustrate imagine imitate immerse impact impair impede implement implicate imply \
    import impose impress improve improvise incline include incorporate increase incur+ index indicate indict induce \
    indulge infect infer+ infest inflate inflict influence inform infringe inhabit inhale inherit inhibit initialise \
    initialize initiate inject injure innovate inquire inscribe insert insist inspect inspire install instruct insulate \
    insure integrate intend interact intercept interest interfere interpret interrupt intervene interview intimidate \
    introduce invade invent invert invest investigate invite invoice invoke involve irrigate irritate isolate issue jerk \
    jog+ join joke jot judge juggle jump justify kick kill kiss knead knit knock label lack land last laugh launch leak \
    lean leap learn lease lecture level liberate lick lift light like limit line linger link liquidate list listen live \
    load loan loathe lob+ lock log+ look loom loop loosen love lower lubricate lug+ lure lurk magnify mail maintain manage \
    manipulate manufacture map+ march mark marry mask master match matter mature maximize measure mediate melt mend \
    mention merge migrate mimic mind mine mingle minimise minimize miss misuse mix mobilize mock model modify monitor mop+ \
    mount mourn move multiply mumble murmur mutter name narrow navigate need neglect negotiate nest network neutralise \
    neutralize nibble nod+ nominate normalise normalize note notice notify nourish nudge number obey object oblige observe \
    obsess obstruct obtain occupy occur+ offer omit+ open operate oppose oppress optimise optimize orbit order organise \
    organize originate oust outlast outlaw outline outnumber outweigh overflow overhaul overheat overlap+ overload \
    overlook oversee overstate overturn owe own pacify pack package paddle paint paraphrase pardon park parole parse part \
    participate pass paste patch pause pave peak peek peel peer penetrate perceive perform perish permit+ persecute \
    persist persuade phone pick pile pinch pinpoint pipe place plan+ plant play plead please plot+ plug+ plumb plunge \
    point poke polish poll pollute ponder pool populate portion portray pose possess post postpone pour practice practise \
    praise pray preach precede precipitate preclude predict prefer+ preheat prepare prescribe present preserve preside \
    press presume pretend prevail prevent price print prioritise prioritize probe proceed process procure produce profile \
    program+ prohibit project prolong promise promote prompt propagate propose prosecute prosper protect protest provide \
    provoke prune publish pull pulse pump punish purchase purge pursue push qualify quantify quarantine quarrel quell \
    query question queue quote radiate raise range rank rate ratify rattle reach react realise realize reap reason \
    reassemble reassure rebel+ reboot recall receive recite reckon reclaim recognise recognize recommend reconcile \
    reconnect reconsider record recount recover recruit rectify recycle redirect reduce refer+ reference refine reflect \
    refrain refresh refund refurbish refuse refute regain regard register regret+ regulate rehabilitate rehearse reheat \
    reign reimburse reinforce reiterate reject rejoice relate relax release relieve relinquish reload relocate rely remain \
    remark remedy remember remind remodel remove rename render renew renounce renovate rent reopen repair repay repeat \
    replace replay replenish replicate reply report represent repress reproduce request require rescue research resemble \
    resent reserve reside resign resist resolve resort respect respond rest restart restore restrict restructure resubmit+ \
    result resume retain retaliate retire retract retreat retrieve retry return reuse reveal reverse revert review revise \
    revive revoke revolve reward rinse rip+ risk roam roar roast rob+ roll rot+ rotate round route rub+ ruin rule rumble \
    rush rust sacrifice sag+ sail salute salvage sample sanction satisfy saturate save savor savour scale scan+ scare \
    scatter schedule scold scorch score scour scrap+ scrape scratch scream screen screw scroll scrub+ seal search season \
    seat secure seem segment seize select separate serve service settle shade shape share sharpen shelter shift shim ship+ \
    shop+ shorten shout shove shrug+ shuffle sigh sign signal simmer simplify simulate sip+ skate sketch ski skip+ slash \
    slice slip+ slow slump smell smile smoke smooth smuggle snap+ sneeze sniff snore snow soak soar sob+ soften solder \
    solicit solve soothe sort sound span+ spare spark sparkle specialise specialize specify speculate spell spill splash \
    spoil sponsor spot+ spray sprinkle sprint sprout spur+ squander squeeze squint stab+ stabilise stabilize stack staff \
    stage stall stamp standardise stare start startle starve state stay steam steer stem+ step+ stimulate stipulate stir+ \
    stitch stock stop+ store stow strain stray streamline strengthen stress stretch strip+ strive stroll struggle study \
    stuff stumble subdue submerge submit+ subscribe subside substitute subtract succeed succumb suck sue suffer suffice \
    suggest suit sum+ summarise summarize supervise supply support suppose suppress surf surge surpass surprise surrender \
    surround survey survive suspect suspend sustain swallow swap+ sway swell swerve swipe switch synchronise synchronize \
    tackle tag+ tailor talk tally tame tap+ target taste tax tease tempt tend terminate test testify thank thaw threaten \
    thresh thrill thrive throttle thud tick tie tighten time tip+ tire toast tolerate topple torment toss total touch tour \
    tow trace track trade train transcend transcribe transfer+ transform translate transmit+ transplant transport trap+ \
    travel traverse treat tremble trigger trim+ trip+ trot+ trouble trust try tuck tumble tune turn twinkle twirl twist \
    type underline undermine understate unearth unfasten unfold unify unite unload unlock unpack unplug+ untie unveil \
    unwind unwrap+ unzip+ update upgrade upload uproot urge use utilise utilize utter vacate vaccinate validate value \
    vanish vary vent venture verify vibrate view violate visit voice volunteer vote vow wade wage wait walk wallpaper \
    wander want warm warn warrant wash waste watch water wave weaken wedge weigh welcome weld whip+ whirl whisk whisper \
    whistle whittle widen wilt wink+ wipe wire wish wither witness wonder work worry worship wound wrap+ wrestle yank yawn \
    yearn yell yield zoom";

/// Verbs with forms of their own. The four lists are the same verbs in the same order.
pub(crate) const IRREGULAR_BASE: &str = "\
    arise awake bear beat become begin bend bet bid bind bite bleed blow break breed bring build burst buy catch choose \
    cling come cost creep cut deal dig do draw drink drive eat fall feed feel fight find flee fling fly forbid foresee \
    forget forgive forgo forsake freeze get give go grow have hear hide hit hold hurt keep kneel know lay lead leave lend \
    let lie lose make mean meet mislead mow outgrow outrun outsell overcome override overtake overthrow overwrite pay \
    prove put quit read rebuild redo rerun reset rewrite ride ring rise run say see seek sell send set sew shake shed \
    shine shoot show shrink shut sing sink sit sleep slide sling slit sow speak speed spend spin spit split spread spring \
    stand steal stick sting stink stride strike swear sweep swim swing take teach tear tell think throw thrust tread \
    undergo understand undo uphold upset wake wear weave weep win wind withdraw withhold withstand wring write";
pub(crate) const IRREGULAR_S: &str = "\
    arises awakes bears beats becomes begins bends bets bids binds bites bleeds blows breaks breeds brings builds bursts \
    buys catches chooses clings comes costs creeps cuts deals digs does draws drinks drives eats falls feeds feels fights \
    finds flees flings flies forbids foresees forgets forgives forgoes forsakes freezes gets gives goes grows has hears \
    hides hits holds hurts keeps kneels knows lays leads leaves lends lets lies loses makes means meets misleads mows \
    outgrows outruns outsells overcomes overrides overtakes overthrows overwrites pays proves puts quits reads rebuilds \
    redoes reruns resets rewrites rides rings rises runs says sees seeks sells sends sets sews shakes sheds shines shoots \
    shows shrinks shuts sings sinks sits sleeps slides slings slits sows speaks speeds spends spins spits splits spreads \
    springs stands steals sticks stings stinks strides strikes swears sweeps swims swings takes teaches tears tells thinks \
    throws thrusts treads undergoes understands undoes upholds upsets wakes wears weaves weeps wins winds withdraws \
    withholds withstands wrings writes";
pub(crate) const IRREGULAR_PAST: &str = "\
    arose awoke bore beat became began bent bet bid bound bit bled blew broke bred brought built burst bought caught chose \
    clung came cost crept cut dealt dug did drew drank drove ate fell fed felt fought found fled flung flew forbade \
    foresaw forgot forgave forwent forsook froze got gave went grew had heard hid hit held hurt kept knelt knew laid led \
    left lent let lay lost made meant met misled mowed outgrew outran outsold overcame overrode overtook overthrew \
    overwrote paid proved put quit read rebuilt redid reran reset rewrote rode rang rose ran said saw sought sold sent set \
    sewed shook shed shone shot showed shrank shut sang sank sat slept slid slung slit sowed spoke sped spent spun spat \
    split spread sprang stood stole stuck stung stank strode struck swore swept swam swung took taught tore told thought \
    threw thrust trod underwent understood undid upheld upset woke wore wove wept won wound withdrew withheld withstood \
    wrung wrote";
pub(crate) const IRREGULAR_PARTICIPLE: &str = "\
    arisen awoken borne beaten become begun bent bet bid bound bitten bled blown broken bred brought built burst bought \
    caught chosen clung come cost crept cut dealt dug done drawn drunk driven eaten fallen fed felt fought found fled \
    flung flown forbidden foreseen forgotten forgiven forgone forsaken frozen gotten given gone grown had heard hidden hit \
    held hurt kept knelt known laid led left lent let lain lost made meant met misled mown outgrown outrun outsold \
    overcome overridden overtaken overthrown overwritten paid proven put quit read rebuilt redone rerun reset rewritten \
    ridden rung risen run said seen sought sold sent set sewn shaken shed shone shot shown shrunk shut sung sunk sat slept \
    slid slung slit sown spoken sped spent spun spat split spread sprung stood stolen stuck stung stunk stridden struck \
    sworn swept swum swung taken taught torn told thought thrown thrust trodden undergone understood undone upheld upset \
    woken worn woven wept won wound withdrawn withheld withstood wrung written";

/// Words that may stand before the verb of a command.
pub(crate) const POLITE: &str = "then please always never and";
/// Words after which a new clause may begin.
pub(crate) const PARTS: &str = "and so but yet because while although though whereas";
/// Finite forms of be, have, do and the modals.
pub(crate) const AUXILIARY: &str = "is are was were am has have had do does did can could will would shall should may might must cannot ought";
/// What an instruction or a rule is told by.
pub(crate) const OBLIGATION: &str = "must should shall";
pub(crate) const CONDITION: &str = "if unless whether would";
pub(crate) const HAS_TO: &str = "have has need needs";
pub(crate) const TIMELESS: &str = "always never";
pub(crate) const MONTH: &str = "may march";
/// Words that may stand between a quantity and its number.
pub(crate) const LINK: &str = "of at for about exactly set to only equals";
/// Words that make a number a bound; they belong to what is said.
pub(crate) const BOUND: &str = "most least up than more less under over longer within";
pub(crate) const MODAL: &str = "would can could may might";
pub(crate) const BE: &str = "is are was were be been being am";
pub(crate) const DETERMINER: &str = "a an the this that these those my your his her its our their each every some any no another both either neither whose which what";
pub(crate) const PREPOSITION: &str = "of in on at by for with from to into onto over under above below between among through during within without against about \
    across along around behind beside beyond despite down inside near off out outside past per since till toward towards until upon up via \
    as than like unlike versus except";
pub(crate) const PRONOUN: &str = "i you he she it we they me him us them one ones mine yours hers ours theirs myself yourself himself herself itself ourselves \
    themselves someone somebody something anyone anybody anything everyone everybody everything nobody nothing none who whom whoever whatever \
    this that these those there here such others other both all most many few several two another each";
/// Words that point back to what was said before.
pub(crate) const POINTER: &str = "he she it they him her them his its their this that these those such same other others another there then here both one ones \
    itself themselves himself herself either neither former latter again also too instead otherwise still later earlier next previous above second third last \
    first more further similarly likewise first all none you your we our us i my me each";
pub(crate) const SUBORDINATOR: &str = "although because though unless whereas while when whenever where wherever if since until till after before once lest provided as that who which whose whom";
/// Subordinators that open a fragment when no main clause follows.
pub(crate) const OPENER: &str = "although because though unless whereas while if whenever lest which";
pub(crate) const CONJUNCTION: &str = "and or but nor yet so";
pub(crate) const CONNECTIVE: &str = "therefore thus hence consequently accordingly however moreover furthermore nevertheless nonetheless besides additionally likewise similarly";
pub(crate) const NEGATION: &str = "not no never nobody none nothing neither nor without cannot hardly";
pub(crate) const FUNCTION: &str = "a an the this that these those my your his her its our their each every some any no another both either neither \
    of in on at by for with from to into onto over under above below between among through during within without against about across along around \
    behind beside beyond despite down inside near off out outside past per since till toward towards until upon up via as than like \
    i you he she it we they me him us them one who whom whose which what when where why how if because although though unless whereas while whether \
    and or but nor yet so not is are was were be been being am has have had having do does did doing can could will would shall should may might must cannot \
    there here then just only also too very more most less least much many few all none other others such same own again once ever never always";
/// Words that carry no subject of their own in normal forms: the articles and the forms that negation leaves behind.
pub(crate) const ARTICLE: &str = "a an the do does did";

pub(crate) const UNIT: &str = "% ° € $ £ ¥ percent percentage degrees degree celsius fahrenheit kelvin \
    ns us µs ms s sec secs second seconds min mins minute minutes h hr hrs hour hours day days night nights week weeks month months quarter quarters year years decade decades century centuries \
    nm µm um mm cm dm m km metre metres meter meters kilometre kilometres kilometer kilometers inch inches ft foot feet yard yards mile miles \
    mg µg ug g kg t ton tons tonne tonnes gram grams kilogram kilograms lb lbs pound pounds ounce ounces oz stone \
    ml cl dl l litre litres liter liters gallon gallons cup cups teaspoon teaspoons tablespoon tablespoons tsp tbsp \
    bit bits byte bytes b kb mb gb tb pb kib mib gib tib kbit mbit gbit mbps gbps bps hz khz mhz ghz rpm fps dpi px \
    v mv kv volt volts ma amp amps ampere amperes w mw kw gw watt watts kilowatt kilowatts wh kwh mwh j kj mj joule joules cal kcal ohm ohms \
    kn mn newton newtons pa kpa mpa hpa bar mbar psi mmhg atm db dba lux lx lm mol mmol ppm ppb \
    euro euros eur dollar dollars usd cent cents gbp pence yen franc francs million millions billion billions thousand dozen bn \
 c f times fold iu kelvins mph kmh knots acres hectares";
/// Nouns that name a quantity with a dimension: a bare number after them lacks its unit.
pub(crate) const DIMENSION: &str = "temperature pressure length width height depth thickness diameter radius distance weight mass speed velocity voltage current power energy \
    timeout delay interval duration latency dose dosage volume altitude force torque frequency wavelength bandwidth thermostat oven lifetime wait clearance price fee rent salary";
pub(crate) const CALENDAR: &str = "january february april june july august september october november december \
    jan feb apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays sundays \
    noon midnight utc gmt";
/// Words that say that a value holds only for a time or for one of several.
pub(crate) const QUALIFIER: &str = "then now later earlier till yesterday today tomorrow previously formerly currently initially finally originally once \
    from when while during if unless otherwise instead old new first second third last next other older newer former latter some \
    rose fell rises falls increased decreased dropped grew becomes became changed changes moved went lowered raised \
    expected planned estimated forecast target";
pub(crate) const NUMERAL: &[(&str, u16)] = &[
    ("one", 1),
    ("two", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
    ("eleven", 11),
    ("twelve", 12),
    ("fifteen", 15),
    ("twenty", 20),
    ("thirty", 30),
    ("forty", 40),
    ("fifty", 50),
    ("hundred", 100),
    ("half", 0),
    ("zero", 0),
    ("thirteen", 13),
    ("fourteen", 14),
    ("sixteen", 16),
    ("seventeen", 17),
    ("eighteen", 18),
    ("nineteen", 19),
    ("sixty", 60),
    ("seventy", 70),
    ("eighty", 80),
    ("ninety", 90),
    ("once", 1),
    ("twice", 2),
];
pub(crate) const ORDINAL: &[(&str, u16)] = &[
    ("first", 1),
    ("firstly", 1),
    ("second", 2),
    ("secondly", 2),
    ("third", 3),
    ("thirdly", 3),
    ("fourth", 4),
    ("fourthly", 4),
    ("fifth", 5),
    ("fifthly", 5),
    ("sixth", 6),
    ("finally", 99),
    ("lastly", 99),
];
/// Abbreviations whose period ends a sentence only where another opens; some do not even there.
pub(crate) const ABBREVIATION: &str = "mr mrs ms dr prof st sr jr vs etc eg ie cf al fig figs eq sec no nos vol pp ed eds approx ca dept est inc ltd co corp gen gov hon rev capt col sgt jan feb mar apr jun jul aug sep sept oct nov dec resp incl excl max min";
/// All-capital words that a general reader knows.
pub(crate) const ACRONYM: &str = "ok usa uk eu un us uae nato nasa esa who unesco unicef fbi cia nsa irs bbc cnn gdp vat ceo cto cfo coo hr pr it tv dvd cd fm am pm bc ad bce ce \
    id pin atm faq diy asap fyi ps pps rsvp eta cpu gpu ram rom ssd hdd usb led lcd pdf html css xml json yaml csv tsv sql api url uri http https ftp ssh ssl tls tcp udp ip dns dhcp \
    vpn lan wan wifi gps gsm sms mms nfc rfid pc os io ui ux ai ml iot aws gcp gnu bsd mit ibm hp dna rna hiv aids covid mri ct ecg ekg icu gp adhd ptsd bmi iq \
    utc gmt cet est pst edt pdt bst iso ieee ietf rfc din ansi ascii utf posix unix linux ac dc rpm hvac pvc ph ngo mba phd msc bsc ba ma md rn \
    ci sd se sem df hz khz mhz ghz kb mb gb tb pb kib mib gib kw mw gw kwh db dba psi mph kmh usd eur gbp jpy chf ii iii iv vi vii viii ix xi xii xiii xiv xv xx xxi \
    a b readme todo fixme ide sdk cli gui jpeg jpg png gif svg mp mpeg zip lp ep uv ir aka rip vip suv phev rest crud cors oauth gdpr hipaa acid nosql vm kpi roi b2b \
    nyse nasdaq imf ecb opec mph nba nfl fifa ioc ymca uefa tbd tba na n/a cc bcc re fw eof crc path isbn issn bom sha md5 aes rsa sigterm sigkill null true false get put post delete patch head and or not";
/// Pairs of opposites; the second of a pair is the negation of the first.
pub(crate) const OPPOSITE: &[(&str, &str)] = &[
    ("open", "closed"),
    ("on", "off"),
    ("enabled", "disabled"),
    ("running", "stopped"),
    ("true", "false"),
    ("valid", "invalid"),
    ("safe", "unsafe"),
    ("available", "unavailable"),
    ("present", "absent"),
    ("possible", "impossible"),
    ("agree", "disagree"),
    ("alive", "dead"),
    ("full", "empty"),
    ("higher", "lower"),
    ("more", "less"),
    ("fast", "slow"),
    ("hot", "cold"),
    ("wet", "dry"),
    ("legal", "illegal"),
    ("stable", "unstable"),
    ("known", "unknown"),
    ("increased", "decreased"),
    ("increases", "decreases"),
    ("rose", "fell"),
    ("rises", "falls"),
    ("passed", "failed"),
    ("passes", "fails"),
    ("succeeded", "crashed"),
    ("allowed", "forbidden"),
    ("required", "optional"),
    ("public", "private"),
    ("visible", "hidden"),
    ("correct", "incorrect"),
    ("complete", "incomplete"),
    ("likely", "unlikely"),
    ("healthy", "ill"),
    ("guilty", "innocent"),
    ("won", "lost"),
    ("accepted", "rejected"),
    ("early", "late"),
    ("cheaper", "dearer"),
    ("same", "different"),
    ("safe", "dangerous"),
    ("large", "small"),
    ("heavy", "light"),
    ("heavier", "lighter"),
    ("longer", "shorter"),
    ("larger", "smaller"),
    ("faster", "slower"),
    ("stronger", "weaker"),
    ("profit", "loss"),
    ("gained", "dropped"),
    ("positive", "negative"),
    ("locked", "unlocked"),
    ("encrypted", "unencrypted"),
    ("accepts", "refuses"),
    ("reversible", "irreversible"),
    ("early", "delayed"),
    ("permanent", "temporary"),
    ("free", "paid"),
    ("sufficient", "insufficient"),
    ("affected", "unaffected"),
    ("changed", "unchanged"),
    ("guilty", "acquitted"),
    ("permitted", "prohibited"),
    ("includes", "excludes"),
    ("includes", "exclude"),
    ("include", "exclude"),
];

/// The bytes of the longest word of a list.
pub(crate) const fn longest(list: &str) -> usize {
    let (mut longest, mut length, mut index) = (0, 0, 0);
    while index < list.len() {
        length = if list.as_bytes()[index] == b' ' {
            0
        } else {
            length + 1
        };
        longest = if length > longest { length } else { longest };
        index += 1;
    }
    longest
}
