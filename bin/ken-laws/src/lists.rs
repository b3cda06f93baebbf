//! Knowledge of English that the features share: word classes. What the rubric weighs is in [`crate::rubric`]; this is
//! only grammar. Words are lower case, parted by blanks.

/// Regular verbs, base form; a `+` doubles the last letter (stop, stopped).
pub(crate) const REGULAR: &str = "\
    abandon absorb accelerate accept access accompany account accumulate achieve acknowledge acquire act activate adapt add \
    address adjust administer admit+ adopt advance advise affect afford age agree aim alert align allocate allow alter \
    analyse analyze announce answer appeal appear apply appoint approach approve argue arrange arrive ask assemble assert \
    assess assign assist assume assure attach attack attempt attend attract audit average avoid await back backup bake \
    balance ban+ bar+ base bathe belong benefit blame blend block bloom board boil book border bore borrow bother bounce \
    breathe bridge brighten broadcast brush buffer bundle burn cache calculate calibrate call cancel cap+ care carry cash \
    cast cause cease centre chair challenge change charge chart chase chatter check chill chop+ circle cite claim clarify \
    classify clean clear click climb clone close coach coat code collapse collect comb combine command comment commit+ \
    communicate compare compensate compete compile complain complete comply compose compound compress compute concentrate \
    concern conclude condense conduct configure confine confirm conflict confuse connect conserve consider consist construct \
    consult consume contain continue contract contradict contribute control+ convert convince cook cool cooperate coordinate \
    cope copy correct correlate correspond cough count counter couple cover crack crash crawl create crew crop+ cross cry \
    cue curb cure cycle damage dance dare date debug+ decay decide declare decline decode decorate decrease dedicate deem \
    default defend defer+ define degrade delay delegate delete deliver demand demonstrate denote deny depart depend depict \
    deploy deposit depress derail derive descend describe deserve design designate destroy detach detect deteriorate \
    determine develop deviate devise devote diagnose die differ digest dim+ diminish dip+ direct disable disagree disappear \
    disappoint discard discharge disclose discover discuss dismiss dispatch display dispose dispute disrupt dissolve \
    distinguish distribute disturb divert divide dock document dominate double doubt download draft drag+ drain dread dress \
    drift drill drip+ drop+ drown dry dump duplicate dwell earn ease echo edit educate elect elevate eliminate embed+ emerge \
    emit+ employ empty enable enclose encode encounter encourage encrypt end enforce engage enhance enjoy enlarge enroll \
    ensure entail enter entertain entitle envisage equal equate equip+ erase erode escalate escape establish estimate \
    evacuate evaluate evaporate evolve examine exceed excel+ exchange exclude execute exercise exert exhaust exhibit exist \
    expand expect expel+ experience experiment expire explain explode exploit explore export expose express extend extract \
    facilitate fade fail falsify fasten favor favour fear feature fetch file fill filter finance finish fire fit+ fix flag+ \
    flash flatten float flood flourish flow fluctuate flush focus fold follow force forecast forge form format+ formulate \
    forward foster found frame free frighten fry fuel fulfil+ function fund gain gather generate germinate glow govern grab+ \
    grade grant greet grind grip+ guarantee guard guess guide halt hammer handle hang happen harm harvest hate haul head \
    heal heat help hesitate highlight hinder hint hire hope host house hover hunt identify ignore illustrate imagine impact \
    implement imply import impose impress improve include incorporate increase incur+ index indicate infect infer+ influence \
    inform inherit initialise initialize initiate inject injure insert insist inspect inspire install instruct insulate \
    insure integrate intend interact interest interfere interpret interrupt interview introduce invade invent invest \
    investigate invite invoke involve isolate issue join joke judge jump justify kick kill knead knit knock label lack land \
    last laugh launch leak lean learn lecture level lick lift light like limit line link list listen live load loan lock \
    log+ look loop loosen love lower lubricate maintain manage map+ march mark marry mask master match matter mature \
    maximize measure melt mention merge migrate mind mine minimise minimize miss mix mobilize model modify monitor mount \
    move multiply name narrow need neglect negotiate nest network normalise normalize note notice notify number obey object \
    oblige observe obstruct obtain occupy occur+ offer omit+ open operate oppose optimise optimize order organise organize \
    originate outnumber outweigh overflow overhaul overheat overlap+ overload oversee overstate owe own pack package paint \
    park parse part participate pass paste patch pause peak peel perceive perform permit+ persist persuade phone pick pile \
    pinpoint pipe place plan+ plant play plead please plot+ plug+ plunge point poll pool populate portion pose possess post \
    postpone pour practice practise praise precede preclude predict prefer+ prepare prescribe present preserve press presume \
    prevail prevent price print prioritise prioritize probe proceed process procure produce profile program+ prohibit \
    project prolong promise promote prompt propagate propose protect provide publish pull pulse pump punish purchase purge \
    pursue push qualify quantify quarantine query question queue quote raise range rank rate reach react realise realize \
    reason reassure reboot recall receive reckon recognise recognize recommend reconcile reconnect record recover recruit \
    recycle redirect reduce refer+ reference refine reflect refresh refuse regard register regret+ regulate rehearse \
    reinforce reiterate reject relate relax release relieve reload relocate rely remain remark remedy remember remind remove \
    rename render renew rent reopen repair repay repeat replace replay replicate reply report represent reproduce request \
    require rescue research resemble reserve resign resist resolve resort respect respond rest restart restore restrict \
    restructure resubmit+ result resume retain retire retreat retrieve retry return reuse reveal reverse revert review \
    revise reward rinse risk roam roast rob+ roll rotate round route rub+ ruin rule rush rust sail sample satisfy save scale \
    scan+ scare scatter schedule score scrap+ scratch screen screw scrub+ seal search season seat secure seem segment seize \
    select separate serve service settle shade shape share sharpen shelter shift ship+ shop+ shorten shout shuffle sign \
    signal simplify simulate skate ski skip+ slice slip+ slow smell smile smoke smooth snow soak soften solve sort sound \
    span+ spare spark specify spell spill spot+ spray sprinkle sprint squeeze stabilise stabilize stack staff stage stall \
    stamp standardise start starve state stay steer stem+ step+ stimulate stir+ stitch stock stop+ store strain strengthen \
    stress stretch strip+ strive struggle study stumble submit+ subscribe subside substitute subtract succeed succumb suck \
    suffer suffice suggest suit sum+ summarise summarize supervise supply support suppose surge surpass surprise surrender \
    surround survey survive suspect suspend sustain swallow swap+ swell switch synchronise synchronize tackle tag+ tailor \
    talk tap+ target taste tax tend terminate test thank thaw threaten thrive throttle tick tie tighten time tip+ tire toast \
    tolerate toss total touch tour trace track trade train transcribe transfer+ transform translate transmit+ transplant \
    transport trap+ travel treat tremble trigger trim+ trip+ trouble trust try tune turn twist type underline undermine \
    understate unify unite unload unlock unpack unplug+ unwrap+ update upgrade upload urge use utilise utilize vaccinate \
    validate value vanish vary vent verify vibrate view violate visit voice vote wait walk wander want warm warn wash waste \
    watch water weaken weigh welcome weld whip+ whisper widen wilt wipe wire wish witness wonder work worry wound wrap+ \
    yield zoom";

/// Verbs with forms of their own. The four lists are the same verbs in the same order.
pub(crate) const IRREGULAR_BASE: &str = "\
    arise awake become begin bend bet bid bind bite bleed blow break breed bring build buy catch choose cling come cost \
    creep cut deal dig do draw drink drive eat fall feed feel fight find flee fly forbid forget forgive freeze get give go \
    grow have hear hide hit hold hurt keep know lay lead leave lend let lie lose make mean meet mislead mow outgrow outsell \
    overcome override overwrite pay prove put quit read rebuild redo rerun reset rewrite ride ring rise run say see seek \
    sell send set sew shake shed shine shoot show shrink shut sing sink sit sleep slide sow speak speed spend spin split \
    spread spring stand steal stick sting strike swear sweep swim swing take teach tear tell think throw undergo understand \
    undo uphold upset wake wear weave weep win wind withdraw withhold withstand write";
pub(crate) const IRREGULAR_S: &str = "\
    arises awakes becomes begins bends bets bids binds bites bleeds blows breaks breeds brings builds buys catches chooses \
    clings comes costs creeps cuts deals digs does draws drinks drives eats falls feeds feels fights finds flees flies \
    forbids forgets forgives freezes gets gives goes grows has hears hides hits holds hurts keeps knows lays leads leaves \
    lends lets lies loses makes means meets misleads mows outgrows outsells overcomes overrides overwrites pays proves puts \
    quits reads rebuilds redoes reruns resets rewrites rides rings rises runs says sees seeks sells sends sets sews shakes \
    sheds shines shoots shows shrinks shuts sings sinks sits sleeps slides sows speaks speeds spends spins splits spreads \
    springs stands steals sticks stings strikes swears sweeps swims swings takes teaches tears tells thinks throws undergoes \
    understands undoes upholds upsets wakes wears weaves weeps wins winds withdraws withholds withstands writes";
pub(crate) const IRREGULAR_PAST: &str = "\
    arose awoke became began bent bet bid bound bit bled blew broke bred brought built bought caught chose clung came cost \
    crept cut dealt dug did drew drank drove ate fell fed felt fought found fled flew forbade forgot forgave froze got gave \
    went grew had heard hid hit held hurt kept knew laid led left lent let lay lost made meant met misled mowed outgrew \
    outsold overcame overrode overwrote paid proved put quit read rebuilt redid reran reset rewrote rode rang rose ran said \
    saw sought sold sent set sewed shook shed shone shot showed shrank shut sang sank sat slept slid sowed spoke sped spent \
    spun split spread sprang stood stole stuck stung struck swore swept swam swung took taught tore told thought threw \
    underwent understood undid upheld upset woke wore wove wept won wound withdrew withheld withstood wrote";
pub(crate) const IRREGULAR_PARTICIPLE: &str = "\
    arisen awoken become begun bent bet bid bound bitten bled blown broken bred brought built bought caught chosen clung \
    come cost crept cut dealt dug done drawn drunk driven eaten fallen fed felt fought found fled flown forbidden forgotten \
    forgiven frozen gotten given gone grown had heard hidden hit held hurt kept known laid led left lent let lain lost made \
    meant met misled mown outgrown outsold overcome overridden overwritten paid proven put quit read rebuilt redone rerun \
    reset rewritten ridden rung risen run said seen sought sold sent set sewn shaken shed shone shot shown shrunk shut sung \
    sunk sat slept slid sown spoken sped spent spun split spread sprung stood stolen stuck stung struck sworn swept swum \
    swung taken taught torn told thought thrown undergone understood undone upheld upset woken worn woven wept won wound \
    withdrawn withheld withstood written";

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
/// Abbreviations whose period ends no sentence.
pub(crate) const ABBREVIATION: &str = "mr mrs ms dr prof st sr jr vs etc eg ie cf al fig figs eq sec no nos vol pp ed eds approx ca dept est inc ltd co corp gen gov hon rev capt col sgt jan feb mar apr jun jul aug sep sept oct nov dec resp incl excl max min";
/// All-capital words that a general reader knows.
pub(crate) const ACRONYM: &str = "ok usa uk eu un us uae nato nasa esa who unesco unicef fbi cia nsa irs bbc cnn gdp vat ceo cto cfo coo hr pr it tv dvd cd fm am pm bc ad bce ce \
    id pin atm faq diy asap fyi ps pps rsvp eta cpu gpu ram rom ssd hdd usb led lcd pdf html css xml json yaml csv tsv sql api url uri http https ftp ssh ssl tls tcp udp ip dns dhcp \
    vpn lan wan wifi gps gsm sms mms nfc rfid pc os io ui ux ai ml iot aws gcp gnu bsd mit ibm hp dna rna hiv aids covid mri ct ecg ekg icu gp adhd ptsd bmi iq \
    utc gmt cet est pst edt pdt bst iso ieee ietf rfc din ansi ascii utf posix unix linux ac dc rpm hvac pvc ph ngo mba phd msc bsc ba ma md rn \
    ci sd se sem df hz khz mhz ghz kb mb gb tb pb kib mib gib kw mw gw kwh db dba psi mph kmh usd eur gbp jpy chf ii iii iv vi vii viii ix xi xii xiii xiv xv xx xxi \
    a b readme todo fixme ide sdk cli gui jpeg jpg png gif svg mp mpeg zip lp ep uv ir aka rip vip suv phev rest crud cors oauth gdpr hipaa acid nosql vm kpi roi b2b \
    nyse nasdaq imf ecb opec mph nba nfl fifa ioc ymca uefa tbd tba na n/a cc bcc re fw eof crc sha md5 aes rsa sigterm sigkill null true false get put post delete patch head and or not";
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
];
